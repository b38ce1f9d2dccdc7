"""Cost: what a model takes before it is trained. Parameters, multiply-adds, memory, communication, time.

imagine      a model, its input and its loss on tensors that have no numbers
meter        what every operation costs, and which tensors are alive
passes       one update, one reading, one step of writing of one device
slicing      a model as one of several devices sees it
devices      what devices can do
estimate     all of it together, on one device or many
lectures     the arithmetic of the lectures
report       tables and JSON
"""
