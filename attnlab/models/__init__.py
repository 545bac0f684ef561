"""Networks that variants are tried in, one for each kind of task. Internal: not part of the public interface.

A model of your own subclasses ``Model`` or one of the models here and is registered (``attnlab.register_model``); a study names
it by ``model.name``.
"""
