"""The Hugging Face hub: repositories at a fixed commit, and archives that are unpacked safely."""
