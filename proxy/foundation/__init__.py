"""The ground floor: every room may use it. Nothing here knows of requests or histories.

lru          a cache bounded in bytes, shared fairly between tenants; hashes of bytes that are not kept
lifetime     leases on shared resources, background tasks, the block that ends faults; threads; work of a request
errors       the proxy's own answers: a status, a code, and the party at fault
declaration  declares a setting of a policy, with its description and bounds, as a field of a struct
model_names  names of models, as providers, routers and clouds spell them, and which models bind their thinking
"""
