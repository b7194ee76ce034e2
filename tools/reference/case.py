"""What a row of the tables of tiny models says, and shorthands for their configs."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Codes:
    """A checkpoint with codes: its quantization_config and how it stores scales (int8's in one axis or two)."""

    config: dict
    scale: str = "bfloat16"
    scale_axes: int = 2


@dataclasses.dataclass(frozen=True)
class Case:
    config: dict
    long_prompt: int = 77  # tokens
    shards: int = 1
    dtypes: tuple[str, ...] = ()  # of the tensors in turn, where not all have the config's
    codes: Codes | None = None
    mxfp4: bool = False  # experts are 4-bit codes
    ternary: bool = False  # layers' matrices are, but for `not_ternary`
    not_ternary: tuple[str, ...] = ()  # parts of names
    notes: str = ""
    use_cache: bool = True  # for the greedy continuations
    jitter: str = "embed_tokens"  # parts of the names of weights that a rounding step may move
    norm_mean: float = 1.0  # of the norms' weights; Gemma stores them less one
    published_names: dict[str, str] | None = None  # of tensors beside a vision model, where transformers changed them
    mtp: bool = False  # the file has a layer that predicts one token more
    absent: tuple[str, ...] = ()  # parts of names of tensors that the file lacks
    beside: tuple[str, ...] = ()  # tensors of other models that lie in the file too, of zeros


def heads(query: int, key_value: int, dim: int) -> dict:
    return {"num_attention_heads": query, "num_key_value_heads": key_value, "head_dim": dim}


def mlp(intermediate: int) -> dict:
    return {"intermediate_size": intermediate}
