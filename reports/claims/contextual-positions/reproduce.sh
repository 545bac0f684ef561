#!/bin/sh
# Makes the report of the study contextual-positions again. Run it in an empty folder or a checkout.
git checkout c07bfd07730a
cat > N02-flip-flop.yaml <<'END_OF_STUDY_FILE'
study: contextual-positions
question: Do rotary positions fail where contextual positions are said to be needed?
base:
  model: {dim: 64, depth: 2, heads: 2}
  train: {steps: 1000, batch_size: 64, lr: 3e-3, warmup: 0.1, stop_at: 0.995, eval_every: 100, precision: fp32}
  evaluate: {valid_limit: 500, test_limit: 1000}
  machine: {device: cpu, threads: 1}
  task: {name: flip_flop, length: 32}
  variant: dense
grid: {position: [rotary, cope]}
seeds: 0-7
estimand: {name: solve_rate, threshold: 0.99}
baseline: {position: rotary}
claim:
  sentence: With rotary positions, attention does not learn flip-flop.
  source: Golovneva et al. 2024, arXiv:2405.18719, of the usual position embeddings
  cell: {position: rotary}
  direction: cannot
END_OF_STUDY_FILE
attnlab run N02-flip-flop.yaml --until-conclusive --max-seeds 20
attnlab report contextual-positions
