"""Cost: what a model takes before it is trained. Parameters, multiply-adds, memory, communication, time.

    imagine         a model, its input and its loss on tensors that have no numbers
    meter, tape     what every operation costs, and which tensors are alive when
    kernels         what a GPU does otherwise than the machine that counts
    stacks          a stack of equal blocks is counted with four of them
    slicing         a model as one of several devices sees it
    passes          one update, one reading, one step of writing of one device
    devices         what devices can do
    estimate        all of it together, on one device or many
    lectures        the arithmetic of the lectures
    report          tables and JSON

``regard cost MODEL`` is the command; docs/scaling.md plans large runs with it.
"""
