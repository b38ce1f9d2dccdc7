"""The service and the explorer: models behind HTTP, requests that run together, and a page to look at models with.

    ready       a model loaded and made fast           host        models by name, a thread for each
    batching    who waits, who runs together           guard       what a stranger may send, and how long it may take
    app         all routes                             server      sockets, slow clients, an orderly end

Nothing here is imported before it is asked for: ``import regard`` does not know FastAPI.
"""
