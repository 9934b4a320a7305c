"""Token credit in verl: a plug-in of three parts, loaded in the environment of verl's own versions.

plugin.py      what verl loads (entry point `verl.plugins`): registers the other two, and checks that it did
engine.py      verl's FSDP engine, which leaves the credit of each token in the pass for the old log-probabilities
rows.py        attention rows where verl packs sequences and goes round transformers' attention functions
trainer.py     verl's synchronous trainer, which multiplies that credit into the advantages
settings.py    what a configuration says about credit, and the configurations that credit cannot be had under

Without `token_credit` in its configuration verl trains as it does without us.
"""
