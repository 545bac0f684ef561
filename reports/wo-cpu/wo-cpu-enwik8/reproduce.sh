#!/bin/sh
# Makes the report of the study wo-cpu-enwik8 again. Run it in an empty folder or a checkout.
git checkout 8fa39876a607
mkdir -p ablations
cat > ablations/wo-cpu-enwik8.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# Can the output projection Wo be removed? Bytes of Wikipedia, at three lengths of training.
#
# `no_wo` removes Wo and has fewer parameters; `no_wo match=params` spends them on a wider feed-forward layer. Every cell is
# trained at the same learning rates, and cells are compared at the optima of their curves, at each length of training. The
# longest training ends below the bits per byte of xz. The 135 runs took 163 minutes in all, on two cores with fast bf16.
#
# A small model that reads 0.3 to 3 million of enwik8's 90 million training bytes: the trend over these lengths does not predict a
# large, fully trained model (`wo-enwik8.yaml`).
study: wo-cpu-enwik8

base:
  task: {name: enwik8, length: 256}
  position: rotary
  model: {dim: 64, depth: 4, heads: 4}
  train: {batch_size: 8, warmup: 0.1, precision: auto}
  evaluate: {batch_size: 32, valid_limit: 100_000, test_limit: 300_000}
  machine: {device: cpu, threads: 1, matmul_precision: medium, reuse_memory: true}

grid:
  variant: [dense, no_wo, {name: no_wo, match: params}]

over: {train.steps: [150, 450, 1350]}
sweep: {train.lr: [6.3e-3, 1e-2, 1.6e-2, 2.5e-2]}
seeds: 0-7
baseline: {variant: dense}
metric: bits_per_byte
margin: 0.02
END_OF_STUDY_FILE
attnlab run ablations/wo-cpu-enwik8.yaml --workers 2 --no-report
attnlab report wo-cpu-enwik8
