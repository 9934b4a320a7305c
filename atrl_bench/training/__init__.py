"""Recipe -> checkpoint: the recipes, the objectives, the rewards, the trainer."""
