"""Draw the credit of one response: a bar a token, and the picture that the model saw.

python examples/credit_of_a_response.py                      # writes credit.svg
python examples/credit_of_a_response.py --rule raw_attention --out raw.svg
"""

import argparse

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from PIL import Image
from sklearn.datasets import load_digits
from transformers import AutoModelForImageTextToText, AutoProcessor

from atrl_bench.credit import AttentionRows, Credit, CreditConfig, install_row_capture, token_credit, visual_columns
from atrl_bench.models.local import find_model


def answer_with_credit(model, processor, messages, rule) -> tuple[list[str], Credit]:
    """Return the words of a response to the messages, and the credit of each."""
    config = CreditConfig()
    prompt = processor.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    with torch.no_grad():
        tokens = model.generate(**prompt, max_new_tokens=64, do_sample=False)
        num_tokens = tokens.shape[1] - prompt["input_ids"].shape[1]
        whole = {
            name: torch.nn.functional.pad(value, (0, num_tokens), value=int(name == "attention_mask"))
            if value.shape == prompt["input_ids"].shape
            else value
            for name, value in prompt.items()
        }
        with install_row_capture(model, config.num_layers).record(num_tokens) as recording:
            model(**{**whole, "input_ids": tokens})
    attention = AttentionRows(recording.rows(config.reading)[0], visual_columns(model.config, tokens)[0])
    return [processor.decode([token]) for token in tokens[0, -num_tokens:]], token_credit(attention, rule, config)


def draw(words: list[str], credit: Credit, picture: Image.Image, path: str) -> None:
    """Write a figure with the picture and a bar for each token; the line is what every token gets without credit."""
    figure, (seen, bars) = plt.subplots(
        1, 2, figsize=(3 + 0.22 * len(words), 3), width_ratios=[2, 0.22 * len(words)], layout="constrained"
    )
    seen.imshow(picture)
    seen.set_axis_off()
    bars.bar(range(len(words)), credit.credit_T)
    bars.axhline(1, color="black", linewidth=0.8)
    bars.set_xticks(range(len(words)), [word.strip() or "␣" for word in words], rotation=90)
    bars.set_ylabel("credit")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="mini")
    parser.add_argument("--rule", default="atrl")
    parser.add_argument("--out", default="credit.svg")
    options = parser.parse_args()
    folder = find_model(options.model, download=True).folder
    model, processor = AutoModelForImageTextToText.from_pretrained(folder), AutoProcessor.from_pretrained(folder)

    scans = load_digits().images[1300:1303]
    picture = Image.new("RGB", (3 * 56, 56), "white")
    for place, scan in enumerate(scans):
        picture.paste(Image.fromarray((255 - scan * 15).astype("uint8")).resize((56, 56)), (place * 56, 0))
    question = "What is the sum of the digits? Put the answer in \\boxed{}."
    messages = [{"role": "user", "content": [{"type": "image", "image": picture}, {"type": "text", "text": question}]}]
    words, credit = answer_with_credit(model, processor, messages, options.rule)
    draw(words, credit, picture, options.out)
    for word, weight in zip(words, credit.credit_T, strict=True):
        print(f"{weight:5.2f}  {word!r}")
    print(f"Wrote {options.out}")


if __name__ == "__main__":
    main()
