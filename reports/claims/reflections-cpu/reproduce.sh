#!/bin/sh
# Makes the report of the study reflections-cpu again. Run it in an empty folder or a checkout.
git checkout c07bfd07730a
cat > K03-two.yaml <<'END_OF_STUDY_FILE'
study: reflections-cpu
question: Does one layer track S3 with two reflections a token, and not with 
  one?
base:
  model:
    dim: 64
    depth: 1
    heads: 4
  train:
    steps: 1000
    batch_size: 64
    lr: 0.003
    warmup: 0.1
    eval_every: 100
    precision: fp32
  evaluate:
    lengths:
    - 32
    - 64
    valid_limit: 500
    test_limit: 500
  machine:
    device: cpu
    threads: 1
  task:
    name: group
    group: s3
    length: 16
  variant:
    name: delta_product
    short_conv: 0
grid:
  variant.reflections:
  - 1
  - 2
seeds: 0-2
baseline:
  variant.reflections: 1
estimand: mean
margin: 0.05
claim:
  sentence: With two reflections a token, one layer tracks products in S3 better
    than with one.
  source: Siems et al. 2025, arXiv:2502.10297
  cell:
    variant.reflections: 2
  direction: better
  known: true
END_OF_STUDY_FILE
attnlab run K03-two.yaml --until-conclusive --max-seeds 20
attnlab report reflections-cpu
