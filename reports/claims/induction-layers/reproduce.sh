#!/bin/sh
# Makes the report of the study induction-layers again. Run it in an empty folder or a checkout.
git checkout 58bc550bbe17
cat > K06-one.yaml <<'END_OF_STUDY_FILE'
# Induction: which models find the token that followed an earlier marker? A head of the second layer can look for the token after
# the marker when the first layer has moved each token's predecessor to it; a short convolution before the queries, keys and values
# does the same within one layer.
study: induction-layers
question: Does induction need two layers of attention?
base:
  task: {name: induction, length: 32}
  model: {dim: 64, heads: 2}
  train: {steps: 600, batch_size: 32, lr: 3e-3, warmup: 0.1, precision: fp32}
  evaluate: {valid_limit: 500, test_limit: 1000}
  machine: {device: cpu, threads: 1}
grid:
  layers:
    one: {variant: dense, position: rotary, model.depth: 1}
    one_with_convolution: {variant: {name: dense, with: short_conv}, position: rotary, model.depth: 1}
    two: {variant: dense, position: rotary, model.depth: 2}
seeds: 0-7
baseline: {layers: one}
estimand: {name: solve_rate, threshold: 0.95}
claim:
  sentence: One layer of attention does not learn induction.
  source: Olsson et al. 2022, arXiv:2209.11895; Sanford et al. 2024, arXiv:2408.14332
  cell: {layers: one}
  direction: cannot
  known: true
END_OF_STUDY_FILE
attnlab run K06-one.yaml --until-conclusive --max-seeds 20
attnlab report induction-layers
