"""Networks that variants are tested in: a causal language model and a classifier. Internal: not part of the public interface.

A model of your own subclasses ``LanguageModel`` or ``Classifier``, whose ``forward`` the training loop calls, and is registered
under the name that its tasks give as ``kind`` (``attnlab.register_model``).
"""
