"""Recipe -> checkpoint: the recipes, the losses, the rewards, the trainer."""
