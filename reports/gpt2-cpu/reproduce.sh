#!/bin/sh
# Makes the report of the study gpt2-cpu again. Run it in an empty folder or a checkout.
git checkout bdcadf587f51
mkdir -p ablations
cat > ablations/gpt2-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# Bytes or subwords? GPT-2's layout (Radford et al. 2019) on bytes of Wikipedia and on byte-level BPE of 1k, 4k and 16k tokens,
# at equal training FLOPs. Bits per byte are exact in every tokenisation, and all cells are tested on the same text.
#
# A subword stands for 2.2 to 3.4 bytes, but the output layer of a large vocabulary costs more than the rest of this model. The
# numbers of steps make the training FLOPs of all cells equal within 0.3 % (`attnlab plan`): 7.25 TFLOP, with which bytes read
# 1.2 MB of text, 1k tokens 2.5 MB, 4k tokens 2.3 MB, and 16k tokens 1.4 MB. Parameters are not equal: the embedding grows with
# the vocabulary. The context of 256 tokens is a longer text in subwords, too. Every cell is trained at three learning rates, and
# cells are compared at their optima.
#
# The 48 runs took 83 minutes in all, on two cores with fast bf16; the three vocabularies take some minutes once.
# The trainings are far too short to say anything about larger models (`gpt2.yaml`).
study: gpt2-cpu

base:
  task: {name: enwik8, length: 256}
  variant: dense
  position: learned
  model:
    dim: 128
    depth: 4
    heads: 4
    feed_forward: gelu_tanh
    attention_bias: true
    head_bias: false
    tie_embeddings: true
    scale_embeddings: false
    initialization: gpt2
  train: {batch_size: 8, warmup: 0.1, weight_decay: 0.1, precision: auto}
  evaluate: {batch_size: 8, valid_limit: 50_000, test_limit: 250_000}
  machine: {device: cpu, threads: 1, matmul_precision: medium, reuse_memory: true}

grid:
  subwords:
    bytes: {task.tokens: bytes, train.steps: 600}
    bpe1k: {task.tokens: bpe, task.vocabulary: 1_024, train.steps: 545}
    bpe4k: {task.tokens: bpe, task.vocabulary: 4_096, train.steps: 400}
    bpe16k: {task.tokens: bpe, task.vocabulary: 16_384, train.steps: 194}

sweep: {train.lr: [2e-3, 4e-3, 8e-3]}
seeds: 0-2
baseline: {subwords: bytes}
metric: bits_per_byte
margin: 0.02
END_OF_STUDY_FILE
attnlab run ablations/gpt2-cpu.yaml --workers 2
attnlab report gpt2-cpu
