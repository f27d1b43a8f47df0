"""A tiny random Qwen2 and a tokenizer of single characters, made on the spot. It is of Qwen2's kind: Transformers loads it as one."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

# Ġ is a space, and Ċ a newline.
CHARACTERS = "0123456789+=-?Ġabcdefghijklmnopqrstuvwxyz{}\\Ċ"


def tiny(path=None):
    vocab = {t: i for i, t in enumerate(["<pad>", "<eos>", "<unk>", *CHARACTERS, "<|im_end|>"])}
    characters = Tokenizer(models.BPE(vocab, [], unk_token="<unk>"))
    characters.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    characters.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=characters, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(vocab),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    model = Qwen2ForCausalLM(config)
    if path is not None:
        model.save_pretrained(path)
        tokenizer.save_pretrained(path)
    return model, tokenizer


def digit_reward(completions, **_):
    """About half of a random policy's completions have a digit among their first characters."""
    return [1.0 if any(ch.isdigit() for ch in c[:3]) else 0.0 for c in completions]
