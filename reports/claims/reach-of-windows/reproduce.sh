#!/bin/sh
# Makes the report of the study reach-of-windows again. Run it in an empty folder or a checkout.
git checkout c07bfd07730a
cat > K08-short.yaml <<'END_OF_STUDY_FILE'
# Two layers with windows of w keys reach 2 (w - 1) positions back. Each symbol is copied from 9 to 16 positions back, so that
# w = 4 (6 positions) hides it, and w = 12 (22 positions) shows it.
study: reach-of-windows
question: How far back do layers with a window see?
base:
  task: {name: copy, length: 32}
  model: {dim: 64, depth: 2, heads: 2}
  train: {steps: 1000, batch_size: 64, lr: 3e-3, warmup: 0.1, stop_at: 0.995, eval_every: 100, precision: fp32}
  evaluate: {valid_limit: 500, test_limit: 1000}
  machine: {device: cpu, threads: 1}
grid:
  variant:
    - {name: dense, position: rotary}
    - {name: dense, position: rotary, with: {name: window, size: 4}}
    - {name: dense, position: rotary, with: {name: window, size: 12}}
seeds: 0-7
estimand: {name: solve_rate, threshold: 0.9}
baseline: {variant: {name: dense, position: rotary}}
claim:
  sentence: Two layers with windows of 4 positions do not learn to copy symbols from 9 to 16 positions back.
  source: arithmetic, for example Beltagy et al. 2020, arXiv:2004.05150
  cell: {variant: {name: dense, position: rotary, with: {name: window, size: 4}}}
  direction: cannot
  known: true
END_OF_STUDY_FILE
attnlab run K08-short.yaml --until-conclusive --max-seeds 20
attnlab report reach-of-windows
