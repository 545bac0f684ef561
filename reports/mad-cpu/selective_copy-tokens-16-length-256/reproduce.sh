#!/bin/sh
# Makes the report of the study mad-cpu again. Run it in an empty folder or a checkout.
git checkout 48a2b2036e4a
mkdir -p ablations
cat > ablations/mad-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# The six tasks of MAD (Poli et al. 2024, arXiv:2403.17844) at the size of its baseline level, in its model: two mixers of width
# 128 with one head, each followed by a feed-forward layer, which MAD counts as four layers. Rows are drawn afresh, where MAD
# repeats 12,800; batches have 32 rows, where MAD has 128. A training ends when its accuracy on valid reaches 0.995.
study: mad-cpu
question: Are the abilities of Gated DeltaNet at MAD's size as published?

base:
  variant: gated_delta
  position: none
  model: {dim: 128, depth: 2, heads: 1}
  train: {steps: 3000, batch_size: 32, lr: 2e-3, warmup: 0.1, eval_every: 100, stop_at: 0.995, precision: fp32}
  evaluate: {valid_limit: 200, test_limit: 1000}
  machine: {device: cpu, threads: 1}

grid:
  task:
    - {name: noisy_recall, noise: 0, pairs: 8, keys: 8, length: 128}
    - {name: noisy_recall, noise: 0.2, pairs: 8, keys: 8, length: 128}
    - {name: fuzzy_recall, pairs: 12, key_size: 3, value_size: 3, symbols: 8, values: 12}
    - {name: selective_copy, tokens: 16, length: 256}
    - {name: compression, tokens: 32, symbols: 16}
    - {name: memorisation, keys: 128, length: 32}

estimand: mean
seeds: 0-2
END_OF_STUDY_FILE
attnlab run ablations/mad-cpu.yaml --only 'task=selective_copy tokens=16 length=256' --workers 1 --no-report
attnlab report mad-cpu
