"""Activations and softmax with `jax.nn`'s names, initializers, and layers that are plain trees of arrays."""

from hloom.nn import initializers, losses
from hloom.nn.attention import MultiHeadAttention, TransformerBlock
from hloom.nn.convolution import Conv, ConvTranspose
from hloom.nn.functional import (
    celu,
    dot_product_attention,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    identity,
    leaky_relu,
    log1mexp,
    log_sigmoid,
    log_softmax,
    logmeanexp,
    logsumexp,
    mish,
    one_hot,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softmax,
    softplus,
    sparse_plus,
    sparse_sigmoid,
    squareplus,
    standardize,
    swish,
    tanh,
)
from hloom.nn.layers import (
    AvgPool,
    BatchNorm,
    Dropout,
    Embedding,
    Flatten,
    GroupNorm,
    Lambda,
    LayerNorm,
    Linear,
    MaxPool,
    RMSNorm,
    Sequential,
)
from hloom.nn.module import Module, apply, static
from hloom.nn.pooling import avg_pool, max_pool, min_pool, pool
from hloom.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, Recurrent, RNNCell
from hloom.nn.scaled import get_scaled_dot_general_config, scaled_dot_general, scaled_matmul

__all__ = [
    "AvgPool", "BatchNorm", "Conv", "ConvTranspose", "Dropout", "Embedding", "Flatten", "GRU", "GRUCell", "GroupNorm",
    "LSTM", "LSTMCell", "Lambda", "LayerNorm", "Linear", "MaxPool", "Module", "MultiHeadAttention", "RMSNorm", "RNN",
    "RNNCell", "Recurrent", "Sequential", "TransformerBlock", "apply", "avg_pool", "celu", "dot_product_attention",
    "elu", "gelu", "get_scaled_dot_general_config", "glu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh",
    "identity", "initializers", "leaky_relu", "log1mexp", "log_sigmoid", "log_softmax", "logmeanexp", "logsumexp",
    "losses", "max_pool", "min_pool", "mish", "one_hot", "pool", "relu", "relu6", "scaled_dot_general",
    "scaled_matmul", "selu", "sigmoid", "silu", "soft_sign", "softmax", "softplus", "sparse_plus", "sparse_sigmoid",
    "squareplus", "standardize", "static", "swish", "tanh",
]  # fmt: skip
__dir__ = __all__.copy
