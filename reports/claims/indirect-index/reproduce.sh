#!/bin/sh
# Makes the report of the study indirect-index again. Run it in an empty folder or a checkout.
git checkout c07bfd07730a
cat > N11.yaml <<'END_OF_STUDY_FILE'
# A query names a symbol and a distance; the target is the symbol there. Rotary positions mix content and distance in one rotation.
study: indirect-index
question: Do rotary positions keep attention from finding a symbol relative to another?
base:
  task: {name: indirect_index, items: 8, symbols: 16, reach: 1}
  variant: dense
  model: {dim: 64, depth: 2, heads: 2}
  train: {steps: 1000, batch_size: 64, lr: 3e-3, warmup: 0.1, stop_at: 0.995, eval_every: 100, precision: fp32}
  evaluate: {valid_limit: 500, test_limit: 1000}
  machine: {device: cpu, threads: 1}
grid: {position: [rotary, pope]}
seeds: 0-7
estimand: {name: solve_rate, threshold: 0.9}
baseline: {position: rotary}
claim:
  sentence: With rotary positions, attention does not learn indirect indexing.
  source: Gopalakrishnan et al. 2025, arXiv:2509.10534
  cell: {position: rotary}
  direction: cannot
END_OF_STUDY_FILE
attnlab run N11.yaml --until-conclusive --max-seeds 20
attnlab report indirect-index
