"""Activations and softmax with `jax.nn`'s names, initializers, and layers that are plain trees of arrays."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from hloom.ir.process import lazy as _lazy

if _TYPE_CHECKING:  # the names of _HOMES, for type checkers
    # fmt: off
    # isort: off
    from hloom.nn import initializers, losses, regularizers
    from hloom.nn.attention import MultiHeadAttention, TransformerBlock
    from hloom.nn.convolution import Conv, ConvTranspose
    from hloom.nn.decoding import (
        AttentionCell, AttentionState, BahdanauAttention, Beams, LuongAttention, beam_search,
    )
    from hloom.nn.functional import (
        celu, dot_product_attention, elu, gelu, glu, hard_sigmoid, hard_silu, hard_swish, hard_tanh, identity,
        leaky_relu, log1mexp, log_sigmoid, log_softmax, logmeanexp, logsumexp, mish, one_hot, relu, relu6, selu,
        sigmoid, silu, soft_sign, softmax, softplus, sparse_plus, sparse_sigmoid, squareplus, standardize, swish, tanh,
    )
    from hloom.nn.layers import (
        AvgPool, BatchNorm, Dropout, Embedding, Flatten, GroupNorm, Lambda, LayerNorm, Linear, MaxPool, RMSNorm,
        Sequential,
    )
    from hloom.nn.module import Module, apply, draw_key, is_training, static
    from hloom.nn.pooling import avg_pool, max_pool, min_pool, pool
    from hloom.nn.recurrent import (
        GRU, LSTM, RNN, Bidirectional, GRUCell, LSTMCell, Recurrent, RNNCell, StackedCells,
    )
    from hloom.nn.scaled import get_scaled_dot_general_config, scaled_dot_general, scaled_matmul
    # isort: on
    # fmt: on

# Where the public names are defined.
_HOMES = {
    "hloom.nn.attention": "MultiHeadAttention TransformerBlock",
    "hloom.nn.convolution": "Conv ConvTranspose",
    "hloom.nn.decoding": "AttentionCell AttentionState BahdanauAttention Beams LuongAttention beam_search",
    "hloom.nn.functional": (
        "celu dot_product_attention elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu "
        "log1mexp log_sigmoid log_softmax logmeanexp logsumexp mish one_hot relu relu6 selu sigmoid silu soft_sign "
        "softmax softplus sparse_plus sparse_sigmoid squareplus standardize swish tanh"
    ),
    "hloom.nn.layers": (
        "AvgPool BatchNorm Dropout Embedding Flatten GroupNorm Lambda LayerNorm Linear MaxPool RMSNorm Sequential"
    ),
    "hloom.nn.module": "Module apply draw_key is_training static",
    "hloom.nn.pooling": "avg_pool max_pool min_pool pool",
    "hloom.nn.recurrent": "GRU LSTM RNN Bidirectional GRUCell LSTMCell Recurrent RNNCell StackedCells",
    "hloom.nn.scaled": "get_scaled_dot_general_config scaled_dot_general scaled_matmul",
}
_MODULES = {name: f"hloom.nn.{name}" for name in ("initializers", "losses", "regularizers")}
__getattr__ = _lazy.lazy_names(globals(), _HOMES, _MODULES)

__all__ = [*_MODULES, *" ".join(_HOMES.values()).split()]
__dir__ = __all__.copy
