#!/bin/sh
# Makes the report of the study short-conv-cpu again. Run it in an empty folder or a checkout.
git checkout 91e490b6cc36
cat > S07-recall.yaml <<'END_OF_STUDY_FILE'
study: short-conv-cpu
question: Do recurrences recall and copy only with a short convolution?
base:
  model:
    dim: 64
    depth: 2
    heads: 4
  train:
    steps: 600
    batch_size: 32
    lr: 0.003
    warmup: 0.1
    eval_every: 50
    stop_at: 0.995
    precision: fp32
  evaluate:
    valid_limit: 200
    test_limit: 1000
  machine:
    device: cpu
    threads: 1
grid:
  task:
  - name: mqar
    pairs: 4
    length: 32
  - name: copy
    length: 8
  - name: selective_copy
    tokens: 4
    length: 16
  variant:
  - gated_linear
  - ssd
  - delta
  - gated_delta
  variant.short_conv:
  - 0
  - 4
seeds: 0-4
estimand: mean
baseline:
  variant.short_conv: 0
claim:
  sentence: A short convolution lets recurrent layers recall key-value pairs.
  source: Allen-Zhu 2025, arXiv:2512.17351; common to the authors' code of 
    Mamba-2 and Gated DeltaNet
  cell:
    task:
      name: mqar
      pairs: 4
      length: 32
    variant.short_conv: 4
  direction: better
END_OF_STUDY_FILE
attnlab run S07-recall.yaml --until-conclusive --max-seeds 20
attnlab report short-conv-cpu
