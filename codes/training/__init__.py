"""Training: `python train.py -opt options/train.yml`.

sets.py         from the options of the training set to a plan
data.py         which image, crop, degradation, time and noise each sample of each step has
objective.py    states, what the network is to match, the loss
optimisers.py   Adam, AdamW, Lion, Muon, learning rates, the moving average of the weights
states.py       checkpoints: weights for use, states to go on from
validation.py   restored images and their scores along the way
journal.py      log.jsonl, TensorBoard
run.py          the loop, and what it is made of
"""
