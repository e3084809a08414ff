"""A directory that holds a tokenizer with Gemma 4's control tokens and bytes, and nothing else."""
import json
import pathlib

SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>",
           "<|tool_response>", "<tool_response|>", '<|"|>', "<|think|>", "<|channel>", "<channel|>", "<|turn>",
           "<turn|>", "<|image>", "<|audio>", "<|image|>", "<|audio|>", "<image|>", "<audio|>", "<|video|>"]


def write(folder, generation=None, extra=()):
    """extra: pieces that only a model can say, since no merges lead to them."""
    pieces = SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)] + [chr(c) for c in range(33, 127)] + ["\u2581", *extra]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": piece, **flags} for i, piece in enumerate(SPECIAL)],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                          "invert": False},
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": []},
    }
    folder = pathlib.Path(folder)
    folder.joinpath("tokenizer.json").write_text(json.dumps(tokenizer))
    if generation is not None:
        folder.joinpath("generation_config.json").write_text(json.dumps(generation))
    return folder
