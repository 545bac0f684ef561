#!/bin/sh
# Makes the report of the study einsum-elsewhere again. Run it in an empty folder or a checkout.
git checkout 837d582c47f8
cat > A02-memory.yaml <<'END_OF_STUDY_FILE'
# The control of A02 in the recipes of the other studies about loss: dense attention against the same attention written with
# einsum, at the rate that the baseline of each study prefers. The studies that are not here share a recipe with S04.yaml, S06.yaml
# or N06.yaml, in which einsum is a cell.
study: einsum-elsewhere
question: Is attention written with einsum as good as dense attention in each recipe of the court?
base:
  task: {name: pydocs, length: 128}
  variant: dense
  position: rotary
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 300, batch_size: 4, lr: 4e-3, warmup: 0.1, precision: fp32}
  machine: {device: cpu, threads: 1, reuse_memory: true}
grid:
  recipe:
    memory:  # K09.yaml
      task: {name: pydocs, length: 32, sampling: contiguous}
      position: relative
      train.steps: 500
      train.batch_size: 16
      train.lr: 1e-2
    longer:  # N07-long.yaml
      position: learned
      train.steps: 900
      train.batch_size: 8
      train.lr: 5e-3
    qk_norm: {task: {name: pydocs, length: 128}}  # N10-init.yaml
    qk_norm_wikipedia:  # N10-narrow.yaml, N10-sharp.yaml
      task: {name: enwik8, length: 128}
      evaluate: {batch_size: 32, valid_limit: 16_384, test_limit: 65_536}
    gpt2:  # T01.yaml
      task: {name: enwik8, length: 256}
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
      train.steps: 600
      train.batch_size: 8
      train.weight_decay: 0.1
      train.precision: auto
      evaluate: {batch_size: 8, valid_limit: 50_000, test_limit: 250_000}
    wo:  # W02-long.yaml, at its shortest training
      task: {name: enwik8, length: 256}
      model: {dim: 128, depth: 4, heads: 4}
      train.steps: 200
      train.batch_size: 32
      train.precision: auto
      train.lr: 1e-2
      evaluate: {batch_size: 64, valid_limit: 200_000, test_limit: 500_000}
  layers: {dense: {variant: dense}, einsum: {variant: einsum}}
seeds: auto
max_seeds: 20
baseline: {layers: dense}
metric: bits_per_byte
margin: 0.02
claim:
  sentence: Attention written with einsum is as good as dense attention, in the recipe of K09.
  source: a control of this testbed
  cell: {recipe: memory, layers: einsum}
  direction: equivalent
  known: true
END_OF_STUDY_FILE
attnlab run A02-memory.yaml
attnlab run A02-memory.yaml
attnlab report einsum-elsewhere
