"""Where a node is in its graph: eigenvectors of the Laplacian, return probabilities of random walks."""
