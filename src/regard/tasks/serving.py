"""tmp"""
def prepare(model):
    return model
