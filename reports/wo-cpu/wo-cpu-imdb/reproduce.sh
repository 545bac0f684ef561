#!/bin/sh
# Makes the report of the study wo-cpu-imdb again. Run it in an empty folder or a checkout.
git checkout 8a56c24de731
mkdir -p ablations
cat > ablations/wo-cpu-imdb.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# Can the output projection Wo be removed? Sentiment of IMDb's reviews.
#
# `no_wo` removes Wo and has fewer parameters; `no_wo match=params` spends them on a wider feed-forward layer. Every cell is
# trained at the same learning rates, and cells are compared at the optima of their curves. The classifier reads a class token,
# which sees the review through attention alone: the control `none`, which does not mix positions, must be found worse. The 48
# runs took 120 minutes in all, on two cores with fast bf16.
#
# Two narrow blocks that read 128 words of each review once, instead of six blocks and 512 words (`wo.yaml`).
study: wo-cpu-imdb

base:
  task: {name: imdb, length: 128, vocabulary: 50_000}
  position: learned
  model: {dim: 64, depth: 2, heads: 4, pool: class, embedding_dropout: 0.1, word_dropout: 0.1}
  train: {epochs: 1, batch_size: 32, warmup: 0.1, weight_decay: 0.05, precision: auto}
  evaluate: {batch_size: 128}
  machine: {device: cpu, threads: 1, matmul_precision: medium, reuse_memory: true}

grid:
  variant: [dense, no_wo, {name: no_wo, match: params}, {name: none, position: none}]

sweep: {train.lr: [1.5e-3, 3e-3, 6e-3]}
seeds: [0, 1, 2]
baseline: {variant: dense}
control: {variant: none position=none}
metric: accuracy
margin: 0.01
END_OF_STUDY_FILE
attnlab run ablations/wo-cpu-imdb.yaml --workers 2 --no-report
attnlab report wo-cpu-imdb
