"""Attention layers of other libraries as variants, so that ``attnlab check`` can test them as they are.

    torch:nn.MultiheadAttention     PyTorch's layer
    xt:Attention                    the layer of x-transformers, with its flags as options
    hf:LlamaAttention               an attention class of transformers, with fields of its configuration as options
    fla:gated_delta_rule            a reference function of flash-linear-attention, between projections

The options of the command are keyword arguments of the other library. ``ADAPTERS`` in ``attnlab.registry`` has a function for
each library; packages add others by entry points of the group ``attnlab.adapters``.
"""
