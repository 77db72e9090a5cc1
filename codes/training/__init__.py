"""Training: `python train.py -opt options/train.yml`.

stages.py        runs the stages of an option file one after the other
setup.py         from options to a Run: data, networks, objective
loop.py          the step and the loop over all steps
sets.py          from the options of the training set to a DataPlan
data.py          the image, patch, degradation, time and noise of every sample
loader.py        batches for one training process, read ahead by others
objective.py     training states, targets and the loss
published.py     the published objective: match the optimal reverse step
distillation.py  learn from a frozen teacher to restore in one or two evaluations
optimisers.py    Adam, AdamW, Lion, Muon, learning rates, the moving average of the weights
checkpoints.py   weights for use, and states to resume from
validation.py    restored images and their scores along the way
journal.py       log.jsonl, TensorBoard
"""
