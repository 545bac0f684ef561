#!/bin/sh
# Makes the report of the study induction-two-layers again. Run it in an empty folder or a checkout.
git checkout c07bfd07730a
cat > K06-two.yaml <<'END_OF_STUDY_FILE'
# Longer trainings than in K06-one, where two layers learned induction with 6 of 8 seeds.
study: induction-two-layers
question: Do two layers of attention learn induction with most seeds?
base:
  task: {name: induction, length: 32}
  variant: dense
  position: rotary
  model: {dim: 64, heads: 2}
  train: {steps: 1500, batch_size: 32, lr: 3e-3, warmup: 0.1, stop_at: 0.995, eval_every: 100, precision: fp32}
  evaluate: {valid_limit: 500, test_limit: 1000}
  machine: {device: cpu, threads: 1}
grid: {model.depth: [1, 2]}
seeds: 100-111
baseline: {model.depth: 1}
estimand: {name: solve_rate, threshold: 0.95}
claim:
  sentence: Two layers of attention learn induction.
  source: Olsson et al. 2022, arXiv:2209.11895
  cell: {model.depth: 2}
  direction: can
END_OF_STUDY_FILE
attnlab run K06-two.yaml --until-conclusive --max-seeds 20
attnlab report induction-two-layers
