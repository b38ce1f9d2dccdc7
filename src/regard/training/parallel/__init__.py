"""Training on several devices: data, sharded and tensor parallel."""
