"""The layer of Qwen3.5 that predicts one token more (multi-token prediction). transformers leaves it out, so it is put
together here from transformers' own parts as vLLM computes it (vllm/model_executor/models/qwen3_next_mtp.py):

    x = fc(cat(pre_fc_norm_embedding(embedding(token i + 1)), pre_fc_norm_hidden(hidden state i)))

then one layer of full attention at position i and `norm`, whose result gives the logits of token i + 2 by the model's
head. The hidden state is the model's after its final norm; for tokens after the last that the model has read it is the
layer's own result.
"""

import copy
import pathlib

from safetensors.torch import load_file
import torch
from torch import nn
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5RMSNorm, Qwen3_5TextModel

from reference import as_in_pinion, widen


class MtpLayer(nn.Module):
    def __init__(self, config) -> None:
        super().__init__()
        config = copy.deepcopy(config.get_text_config())
        config.num_hidden_layers, config.layer_types = 1, ["full_attention"]
        config._attn_implementation = "eager"
        width = config.hidden_size
        self.fc = nn.Linear(2 * width, width, bias=False)
        self.pre_fc_norm_embedding = Qwen3_5RMSNorm(width, eps=config.rms_norm_eps)
        self.pre_fc_norm_hidden = Qwen3_5RMSNorm(width, eps=config.rms_norm_eps)
        self.body = Qwen3_5TextModel(config)
        del self.body.embed_tokens

    def forward(self, embeddings: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        both = torch.cat((self.pre_fc_norm_embedding(embeddings), self.pre_fc_norm_hidden(hidden)), -1)
        return self.body(inputs_embeds=self.fc(both)[None], use_cache=False).last_hidden_state[0]


def name_in_file(name: str) -> str:
    return "mtp." + name.removeprefix("body.")


def shapes(config) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        layer = MtpLayer(config)
    return {name_in_file(name): tuple(p.shape) for name, p in layer.named_parameters()}


def load(folder: pathlib.Path, config, quant: str = "none", wide: bool = False) -> MtpLayer:
    """As reference.load_model loads the model itself."""
    tensors = load_file(folder / "model.safetensors")
    layer = MtpLayer(config).eval().requires_grad_(False)
    for name, parameter in layer.named_parameters():
        parameter.copy_(tensors[name_in_file(name)].float())
    if wide:
        widen(layer)
    as_in_pinion(layer, quant, keep=(), coded=set())
    return layer


@torch.no_grad()
def logits(model: nn.Module, layer: MtpLayer, ids: list[int], following: list[int]) -> torch.Tensor:
    """[len(ids) + len(following) - 1, vocab]: behind each of `ids` and the token after it, of which the last is
    `following`'s first, then behind each further one of `following` as a draft."""
    body = getattr(model.model, "language_model", model.model)
    hidden = body(torch.tensor([ids]), use_cache=False).last_hidden_state[0]
    tokens = ids[1:] + following[:1]
    rows = []
    for draft in [*following[1:], None]:
        result = layer(model.get_input_embeddings()(torch.tensor(tokens)), hidden)
        rows.append(model.get_output_embeddings()(result if not rows else result[-1:]))
        if draft is not None:
            tokens = tokens + [draft]
            hidden = torch.cat((hidden, result[-1:]))
    return torch.cat(rows)
