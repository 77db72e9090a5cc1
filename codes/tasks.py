"""The ten degradations, by the names of their folders."""

from typing import Literal, get_args

TaskName = Literal[
    "motion-blurry",
    "hazy",
    "jpeg-compressed",
    "low-light",
    "noisy",
    "raindrop",
    "rainy",
    "shadowed",
    "snowy",
    "uncompleted",
]
TASKS: tuple[TaskName, ...] = get_args(TaskName)
