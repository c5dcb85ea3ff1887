"""Classes of transformers with small random configurations, by what they take.

`SMALL` gives the sizes that a configuration gets wherever it knows the name (in its parts too); a line of a table says what differs from that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from tests.zoo.models import Inputs, Model

LAYERS, WIDTH, HEADS, INNER, WORDS = 2, 32, 4, 64, 128
SMALL: dict[str, Any] = {
    **dict.fromkeys(
        ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "num_encoder_layers",
         "num_decoder_layers", "text_layers"), LAYERS),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "emb_dim", "embedding_size"), WIDTH),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"), HEADS),
    "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8,
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "n_inner", "ffn_dim"), INNER),
    "vocab_size": WORDS, "max_position_embeddings": 64, "n_positions": 64, "projection_dim": 16,
    "image_size": 32, "patch_size": 8,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "num_labels": 3,
}  # fmt: skip


def configuration(cls: Any, changes: dict[str, Any]) -> Any:
    return cls(**sizes(cls, changes))


def sizes(cls: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a small configuration of that class."""
    changes = dict(changes)
    known = {f.name for f in dataclasses.fields(cls)}
    found = {name: size for name, size in SMALL.items() if name in known}
    for name, part in cls.sub_configs.items():
        own = changes.pop(name, {})
        if dataclasses.is_dataclass(part) and own is not None and part.__name__ != "AutoConfig":
            found[name] = sizes(part, own)
            if "model_type" in known or hasattr(part, "model_type"):
                found[name].setdefault("model_type", part.model_type)
        elif own:
            found[name] = own
    return {**found, **changes}


def builder(name: str, changes: dict[str, Any]) -> Callable[[], Any]:
    def build() -> Any:
        import transformers

        cls = getattr(transformers, name)
        return cls(configuration(cls.config_class, changes))

    return build


# ---- inputs


def draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def words(seed: int, length: int = 12, rows: int = 2) -> torch.Tensor:
    return torch.randint(3, WORDS, (rows, length), generator=draw(seed))


def tokens(seed: int) -> Inputs:
    mask = torch.ones(2, 12, dtype=torch.long)
    return {"input_ids": words(seed), "attention_mask": mask}


def padded(seed: int) -> Inputs:
    """Two sentences, the second one shorter."""
    inputs = tokens(seed)
    inputs["attention_mask"][1, 9:] = 0
    return inputs


def only_tokens(seed: int) -> Inputs:
    return {"input_ids": words(seed)}


def two_sequences(seed: int) -> Inputs:
    return {**tokens(seed), "decoder_input_ids": words(seed + 100, 7)}


def pixels(size: int = 32, rows: int = 1, channels: int = 3) -> Callable[[int], Inputs]:
    return lambda seed: {
        "pixel_values": torch.randn(rows, channels, size, size, generator=draw(seed))
    }


def frames(count: int, size: int = 32) -> Callable[[int], Inputs]:
    return lambda seed: {"pixel_values": torch.randn(1, count, 3, size, size, generator=draw(seed))}


def samples(length: int) -> Callable[[int], Inputs]:
    return lambda seed: {"input_values": torch.randn(1, length, generator=draw(seed))}


def spectrum(
    length: int, bins: int, name: str = "input_features", channels_first: bool = False
) -> Callable[[int], Inputs]:
    def inputs(seed: int) -> Inputs:
        shape = (1, bins, length) if channels_first else (1, length, bins)
        return {name: torch.randn(shape, generator=draw(seed))}

    return inputs


def both(*makers: Callable[[int], Inputs]) -> Callable[[int], Inputs]:
    return lambda seed: {name: value for make in makers for name, value in make(seed).items()}


def speech_to_words(maker: Callable[[int], Inputs]) -> Callable[[int], Inputs]:
    return lambda seed: {**maker(seed), "decoder_input_ids": words(seed + 100, 7, rows=1)}


CONV_SMALL = {"conv_dim": (16, 16, 16), "conv_kernel": (10, 3, 3), "conv_stride": (5, 2, 2), "num_feat_extract_layers": 3,
              "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}  # fmt: skip

Table = list[tuple[str, dict[str, Any], Callable[[int], Inputs]]]

TEXT_ENCODERS: Table = [
    ("LiltModel", {"channel_shrink_ratio": 4, "max_2d_position_embeddings": 128}, padded),
    ("MarkupLMModel", {"max_depth": 4, "xpath_unit_hidden_size": 8}, padded),
    ("TapasModel", {}, padded),
    ("XmodModel", {"languages": ["en_XX"], "default_language": "en_XX"}, padded),
    ("RobertaPreLayerNormModel", {}, padded),
    ("BertForQuestionAnswering", {}, padded),
    ("DistilBertForSequenceClassification", {}, padded),
    ("Data2VecTextModel", {}, padded),
    ("JinaEmbeddingsV3Model", {}, padded),
    ("BertModel", {}, padded),
    ("BertForSequenceClassification", {}, padded),
    ("RobertaForMaskedLM", {}, padded),
    ("XLMRobertaModel", {}, padded),
    ("CamembertForTokenClassification", {}, padded),
    ("DistilBertModel", {}, padded),
    ("AlbertModel", {}, padded),
    ("ElectraForPreTraining", {}, padded),
    ("MPNetModel", {}, padded),
    ("DebertaModel", {}, padded),
    ("DebertaV2Model", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, padded),
    ("ModernBertModel", {}, padded),
    ("NystromformerModel", {"segment_means_seq_len": 12, "num_landmarks": 4}, only_tokens),
    ("FNetModel", {}, only_tokens),
    ("MobileBertModel", {"intra_bottleneck_size": 16, "true_hidden_size": 16}, padded),
    ("SqueezeBertModel", {}, padded),
    ("ConvBertModel", {}, padded),
    ("RoFormerModel", {}, padded),
    ("LongformerModel", {"attention_window": 4}, padded),
    ("BigBirdModel", {"attention_type": "original_full"}, padded),
    ("FunnelModel", {"block_sizes": [1, 1], "d_head": 8, "d_inner": 64, "d_model": 32}, padded),
    ("ErnieModel", {}, padded),
    ("MegatronBertModel", {}, padded),
    ("RemBertModel", {"input_embedding_size": 16, "output_embedding_size": 16}, padded),
    ("XLMModel", {}, padded),
    ("XLNetModel", {}, padded),
    ("CanineModel", {}, tokens),
    ("LukeModel", {"entity_vocab_size": 16, "entity_emb_size": 16}, padded),
    ("EsmModel", {"mask_token_id": 4}, padded),
    ("IBertModel", {}, padded),
    ("SplinterModel", {}, padded),
    ("NomicBertModel", {}, padded),
    ("EuroBertModel", {}, padded),
]

DECODERS: Table = [
    ("Cohere2ForCausalLM", {"sliding_window": 6}, padded),
    ("Olmo3ForCausalLM", {"sliding_window": 6}, padded),
    ("HeliumForCausalLM", {}, padded),
    ("ArceeForCausalLM", {}, padded),
    ("Glm4ForCausalLM", {}, padded),
    ("SeedOssForCausalLM", {}, padded),
    ("ApertusForCausalLM", {}, padded),
    ("MinistralForCausalLM", {"sliding_window": 6}, padded),
    ("LlamaForSequenceClassification", {"num_labels": 3}, padded),
    ("GPT2ForSequenceClassification", {}, padded),
    ("DogeForCausalLM", {}, padded),
    ("VaultGemmaForCausalLM", {"sliding_window": 6}, padded),
    ("GPT2LMHeadModel", {}, padded),
    (
        "GPTNeoForCausalLM",
        {"attention_types": [[["global", "local"], 1]], "window_size": 4},
        padded,
    ),
    ("GPTNeoXForCausalLM", {}, padded),
    ("GPTJForCausalLM", {"rotary_dim": 4}, padded),
    ("GPTBigCodeForCausalLM", {}, padded),
    ("CodeGenForCausalLM", {"rotary_dim": 4}, padded),
    ("OPTForCausalLM", {"word_embed_proj_dim": 32}, padded),
    ("BloomForCausalLM", {}, padded),
    ("FalconForCausalLM", {}, padded),
    ("MptForCausalLM", {"max_seq_len": 64}, padded),
    ("LlamaForCausalLM", {}, padded),
    ("MistralForCausalLM", {"sliding_window": 6}, padded),
    ("Qwen2ForCausalLM", {}, padded),
    ("Qwen3ForCausalLM", {}, padded),
    ("GemmaForCausalLM", {}, padded),
    ("Gemma2ForCausalLM", {"sliding_window": 6}, padded),
    ("Gemma3ForCausalLM", {"sliding_window": 6}, padded),
    ("PhiForCausalLM", {}, padded),
    ("Phi3ForCausalLM", {}, padded),
    ("StableLmForCausalLM", {}, padded),
    ("Starcoder2ForCausalLM", {}, padded),
    ("OlmoForCausalLM", {}, padded),
    ("Olmo2ForCausalLM", {}, padded),
    ("CohereForCausalLM", {}, padded),
    ("GraniteForCausalLM", {}, padded),
    ("GlmForCausalLM", {}, padded),
    ("NemotronForCausalLM", {}, padded),
    ("SmolLM3ForCausalLM", {}, padded),
    ("PersimmonForCausalLM", {}, padded),
    ("BioGptForCausalLM", {}, padded),
    ("XGLMForCausalLM", {"attention_heads": 4}, padded),
    ("CTRLModel", {"dff": 64}, padded),
    ("OpenAIGPTModel", {}, padded),
    ("Exaone4ForCausalLM", {}, padded),
    ("DiffLlamaForCausalLM", {}, padded),
    ("ModernBertDecoderForCausalLM", {}, padded),
    ("BertGenerationDecoder", {}, padded),
    ("TrOCRForCausalLM", {}, padded),
    ("NanoChatForCausalLM", {}, padded),
    ("ImageGPTModel", {}, only_tokens),
]

EXPERTS: Table = [
    ("JetMoeForCausalLM", {"kv_channels": 8, "num_key_value_heads": 2}, padded),
    ("MiniMaxForCausalLM", {"layer_types": ["linear_attention", "full_attention"], "block_size": 4}, padded),
    ("Dots1ForCausalLM", {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}, padded),
    ("FlexOlmoForCausalLM", {}, padded),
    ("GraniteMoeSharedForCausalLM", {"shared_intermediate_size": 32}, padded),
    ("DogeForCausalLM", {"is_moe": True}, padded),
    ("MixtralForCausalLM", {}, padded),
    ("Qwen2MoeForCausalLM", {"shared_expert_intermediate_size": 32}, padded),
    ("Qwen3MoeForCausalLM", {}, padded),
    ("OlmoeForCausalLM", {}, padded),
    ("PhimoeForCausalLM", {}, padded),
    ("GraniteMoeForCausalLM", {}, padded),
    ("DeepseekV2ForCausalLM", {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
                               "n_group": 1, "topk_group": 1, "num_key_value_heads": 4}, padded),
    ("DeepseekV3ForCausalLM", {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
                               "n_group": 2, "topk_group": 1, "num_key_value_heads": 4, "first_k_dense_replace": 1}, padded),
    ("GptOssForCausalLM", {}, padded),
    ("Glm4MoeForCausalLM", {"first_k_dense_replace": 1}, padded),
    ("SwitchTransformersModel", {"num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}, two_sequences),
    ("NllbMoeModel", {"encoder_sparse_step": 1, "decoder_sparse_step": 1}, two_sequences),
    ("Ernie4_5_MoeForCausalLM", {"moe_num_experts": 4, "moe_k": 2}, padded),
    ("HunYuanMoEV1ForCausalLM", {"moe_topk": 2}, padded),
]  # fmt: skip

STATE_SPACE: Table = [
    ("MambaForCausalLM", {"state_size": 8}, only_tokens),
    ("Mamba2ForCausalLM", {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4}, only_tokens),
    ("FalconMambaForCausalLM", {"state_size": 8}, only_tokens),
    ("JambaForCausalLM", {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "mamba_d_state": 8,
                          "use_mamba_kernels": False}, padded),
    ("BambaForCausalLM", {"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 4}, padded),
    ("Zamba2ForCausalLM", {"mamba_d_state": 8, "n_mamba_heads": 4, "mamba_headdim": 16, "chunk_size": 4, "use_mamba_kernels": False,
                           "layers_block_type": ["mamba", "hybrid"], "num_mem_blocks": 1, "use_mem_rope": True}, padded),
    ("RwkvModel", {"attention_hidden_size": 32, "context_length": 64}, only_tokens),
    ("RecurrentGemmaForCausalLM", {"num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 8}, only_tokens),
    ("Qwen3NextForCausalLM", {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
                              "shared_expert_intermediate_size": 32, "layer_types": ["linear_attention", "full_attention"]}, padded),
    ("FalconH1ForCausalLM", {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 4}, padded),
    ("Lfm2ForCausalLM", {"layer_types": ["conv", "full_attention"]}, padded),
]  # fmt: skip

ENCODER_DECODERS: Table = [
    ("BigBirdPegasusModel", {"attention_type": "original_full"}, two_sequences),
    ("MvpModel", {}, two_sequences),
    ("PegasusXModel", {"block_size": 4, "num_global_tokens": 4}, two_sequences),
    ("T5GemmaModel", {}, two_sequences),
    ("T5ForConditionalGeneration", {}, two_sequences),
    ("MT5Model", {}, two_sequences),
    ("UMT5Model", {}, two_sequences),
    ("T5EncoderModel", {}, padded),
    ("LongT5Model", {"encoder_attention_type": "local", "local_radius": 4}, two_sequences),
    ("BartForConditionalGeneration", {}, two_sequences),
    ("MBartModel", {}, two_sequences),
    ("PegasusModel", {}, two_sequences),
    ("MarianMTModel", {}, two_sequences),
    ("BlenderbotModel", {}, two_sequences),
    ("BlenderbotSmallModel", {}, two_sequences),
    ("M2M100Model", {}, two_sequences),
    ("PLBartModel", {}, two_sequences),
    ("ProphetNetModel", {"num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4}, two_sequences),
    ("LEDModel", {"attention_window": 4, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64}, two_sequences),
    ("FSMTModel", {"langs": ["en", "de"], "src_vocab_size": 128, "tgt_vocab_size": 128}, two_sequences),
]  # fmt: skip

VISION: Table = [
    ("Dinov2WithRegistersModel", {}, pixels()),
    ("MobileViTV2Model", {"base_attn_unit_dims": [16, 24, 32], "patch_size": 2}, pixels(64)),
    ("MobileNetV1Model", {"depth_multiplier": 0.25}, pixels(64)),
    ("PvtModel", {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 2, 2, 4], "image_size": 64}, pixels(64)),
    ("DepthAnythingForDepthEstimation", {"backbone_config": {"model_type": "dinov2", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
                                                            "out_features": ["stage1", "stage2", "stage3", "stage4"], "reshape_hidden_states": False},
                                         "patch_size": 8, "reassemble_hidden_size": 32, "neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 8, "head_hidden_size": 8}, pixels()),
    ("UperNetForSemanticSegmentation", {"backbone_config": {"model_type": "convnext", "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "out_features": ["stage1", "stage2", "stage3", "stage4"]},
                                        "hidden_size": 16, "auxiliary_in_channels": 24, "auxiliary_channels": 8}, pixels(64)),
    ("DetrForObjectDetection", {"backbone_config": {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "out_features": ["stage2"]},
                                "use_timm_backbone": False, "backbone": None, "num_queries": 6}, pixels(64)),
    ("ViTForMaskedImageModeling", {}, pixels()),
    ("HGNetV2ForImageClassification", {}, pixels(64)),
    ("TextNetModel", {}, pixels(64)),
    ("BeitForImageClassification", {}, pixels()),
    ("VitDetModel", {"pretrain_image_size": 32}, pixels()),
    ("ViTForImageClassification", {}, pixels()),
    ("ViTMAEModel", {}, pixels()),
    ("ViTMSNModel", {}, pixels()),
    ("DeiTModel", {}, pixels()),
    ("BeitModel", {}, pixels()),
    ("Data2VecVisionModel", {}, pixels()),
    ("Dinov2Model", {}, pixels()),
    ("DINOv3ViTModel", {}, pixels()),
    ("SwinForImageClassification", {"depths": [1, 2], "num_heads": [2, 4], "embed_dim": 16, "window_size": 2, "patch_size": 2}, pixels()),
    ("Swinv2Model", {"depths": [1, 2], "num_heads": [2, 4], "embed_dim": 16, "window_size": 2, "patch_size": 2}, pixels()),
    ("ConvNextModel", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "patch_size": 4}, pixels()),
    ("ConvNextV2Model", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "patch_size": 4}, pixels()),
    ("ResNetForImageClassification", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}, pixels()),
    ("RegNetModel", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 4}, pixels()),
    ("SegformerForSemanticSegmentation", {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 2, 2, 4],
                                          "patch_sizes": [7, 3, 3, 3], "decoder_hidden_size": 16}, pixels(64)),
    ("MobileViTModel", {"hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32], "patch_size": 2}, pixels(64)),
    ("MobileNetV2Model", {"depth_multiplier": 0.25}, pixels(64)),
    ("EfficientNetModel", {}, pixels(64)),
    ("PoolFormerModel", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "patch_size": 16}, pixels(64)),
    ("PvtV2ForImageClassification", {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 2, 2, 4]}, pixels(64)),
    ("LevitModel", {"image_size": 64, "patch_size": 16, "hidden_sizes": [32, 48, 64], "num_attention_heads": [2, 3, 4], "depths": [1, 1, 1], "key_dim": [8, 8, 8]}, pixels(64)),
    ("FocalNetModel", {"embed_dim": 16, "depths": [1, 1, 1, 1], "patch_size": 4}, pixels(64)),
    ("HieraModel", {"image_size": [64, 64], "patch_size": [7, 7], "patch_stride": [4, 4], "depths": [1, 1, 1, 1], "embed_dim": 16, "num_heads": [1, 2, 4, 8]}, pixels(64)),
    ("SwiftFormerModel", {"embed_dims": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}, pixels(64)),
    ("BitModel", {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_groups": 2}, pixels(64)),
    ("DPTForDepthEstimation", {"backbone_out_indices": [0, 1, 2, 3], "num_hidden_layers": 4, "neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 8}, pixels(32)),
    ("GLPNForDepthEstimation", {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 8}, pixels(64)),
    ("YolosModel", {"image_size": [32, 32]}, pixels(32)),
    ("IJepaModel", {}, pixels()),
    ("SiglipVisionModel", {}, pixels()),
    ("CLIPVisionModel", {}, pixels()),
    ("VideoMAEModel", {"num_frames": 4}, frames(4)),
    ("TimesformerModel", {"num_frames": 4}, frames(4)),
    ("VivitModel", {"num_frames": 4, "tubelet_size": [2, 8, 8]}, frames(4)),
    ("SuperPointForKeypointDetection", {"encoder_hidden_sizes": [8, 8, 16, 16], "decoder_hidden_size": 16, "descriptor_decoder_dim": 16}, pixels(64)),
    ("Swin2SRForImageSuperResolution", {"depths": [1, 1], "num_heads": [2, 2], "embed_dim": 16, "window_size": 4, "patch_size": 1, "image_size": 16}, pixels(16)),
]  # fmt: skip

AUDIO: Table = [
    ("UniSpeechSatModel", CONV_SMALL, samples(800)),
    ("SEWDModel", {**CONV_SMALL, "squeeze_factor": 2}, samples(800)),
    ("Wav2Vec2ForSequenceClassification", CONV_SMALL, samples(800)),
    ("ParakeetEncoder", {"num_mel_bins": 16, "subsampling_conv_channels": 8, "subsampling_factor": 4}, spectrum(24, 16)),
    ("FastSpeech2ConformerModel", {}, only_tokens),
    ("UnivNetModel", {"model_in_channels": 8, "num_mel_bins": 8, "model_hidden_channels": 8, "kernel_predictor_hidden_channels": 8, "resblock_kernel_sizes": [3],
                      "resblock_stride_sizes": [4], "resblock_dilation_sizes": [[1, 3]]}, spectrum(8, 8)),
    ("Wav2Vec2Model", CONV_SMALL, samples(800)),
    ("Wav2Vec2ForCTC", CONV_SMALL, samples(800)),
    ("HubertModel", CONV_SMALL, samples(800)),
    ("WavLMModel", CONV_SMALL, samples(800)),
    ("UniSpeechModel", CONV_SMALL, samples(800)),
    ("SEWModel", {**CONV_SMALL, "squeeze_factor": 2}, samples(800)),
    ("Data2VecAudioModel", {**CONV_SMALL, "conv_pos_kernel_size": 3, "num_conv_pos_embeddings": 2}, samples(800)),
    ("Wav2Vec2ConformerModel", CONV_SMALL, samples(800)),
    ("Wav2Vec2BertModel", {"feature_projection_input_dim": 16}, spectrum(20, 16)),
    ("WhisperModel", {"num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 16}, speech_to_words(spectrum(20, 8, channels_first=True))),
    ("WhisperForAudioClassification", {"num_mel_bins": 8, "max_source_positions": 10}, spectrum(20, 8, channels_first=True)),
    ("Speech2TextModel", {"input_feat_per_channel": 8, "conv_channels": 16, "max_source_positions": 64, "max_target_positions": 64}, speech_to_words(spectrum(20, 8))),
    ("ASTForAudioClassification", {"max_length": 24, "num_mel_bins": 16, "patch_size": 8, "frequency_stride": 8, "time_stride": 8}, spectrum(24, 16, "input_values")),
    ("ClapAudioModel", {"patch_embeds_hidden_size": 16, "depths": [1, 1], "num_attention_heads": [2, 2], "hidden_size": 32, "spec_size": 64,
                        "num_mel_bins": 16, "window_size": 4, "patch_size": 4, "patch_stride": [4, 4]}, lambda seed: {"input_features": torch.randn(1, 1, 64, 16, generator=draw(seed))}),
    ("EncodecModel", {"hidden_size": 16, "num_filters": 4, "codebook_size": 32, "codebook_dim": 16}, lambda seed: {"input_values": torch.randn(1, 1, 640, generator=draw(seed))}),
    ("DacModel", {"encoder_hidden_size": 8, "decoder_hidden_size": 16, "downsampling_ratios": [2, 4], "upsampling_ratios": [4, 2], "hidden_size": 32,
                  "n_codebooks": 2, "codebook_size": 32, "codebook_dim": 8}, lambda seed: {"input_values": torch.randn(1, 1, 640, generator=draw(seed))}),
    ("MoonshineModel", {"encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 2, "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4,
                        "encoder_num_key_value_heads": 4, "decoder_num_key_value_heads": 4}, speech_to_words(samples(2000))),
    ("MusicgenForCausalLM", {"num_codebooks": 2}, lambda seed: {"input_ids": words(seed, 12, rows=4)}),
    ("VitsModel", {"flow_size": 16, "spectrogram_bins": 9, "ffn_dim": 32, "upsample_initial_channel": 16, "upsample_rates": [2, 2], "upsample_kernel_sizes": [4, 4],
                   "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 2]]}, only_tokens),
]  # fmt: skip

MULTIMODAL: Table = [
    ("Owlv2Model", {}, both(padded, pixels(rows=2))),
    ("AlignModel", {}, both(padded, pixels(64, rows=2))),
    ("Siglip2VisionModel", {"num_patches": 16}, lambda seed: {"pixel_values": torch.randn(1, 16, 192, generator=draw(seed)),
                                         "pixel_attention_mask": torch.ones(1, 16, dtype=torch.long), "spatial_shapes": torch.tensor([[4, 4]])}),
    ("Kosmos2Model", {}, only_tokens),
    ("MllamaForCausalLM", {}, padded),
    ("Qwen2VLTextModel", {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}}, padded),
    ("CLIPModel", {}, both(padded, pixels(rows=2))),
    ("SiglipModel", {}, both(padded, pixels(rows=2))),
    ("AltCLIPModel", {}, both(padded, pixels(rows=2))),
    ("ChineseCLIPModel", {}, both(padded, pixels(rows=2))),
    ("CLIPSegModel", {}, both(padded, pixels(rows=2))),
    ("OwlViTModel", {}, both(padded, pixels(rows=2))),
    ("XCLIPModel", {"projection_dim": 32, "vision_config": {"num_frames": 4, "mit_hidden_size": 32, "mit_intermediate_size": 64, "mit_num_attention_heads": 4, "mit_num_hidden_layers": 1}}, both(padded, frames(4))),
    ("BlipModel", {}, both(padded, pixels(rows=2))),
    ("GroupViTModel", {"vision_config": {"depths": [1, 1], "num_group_tokens": [8, 0], "num_output_groups": [8, 4], "hidden_size": 32}}, both(padded, pixels(rows=2))),
    ("ViltModel", {}, both(padded, pixels(rows=2))),
    ("VisualBertModel", {"visual_embedding_dim": 20}, lambda seed: {**tokens(seed), "visual_embeds": torch.randn(2, 5, 20, generator=draw(seed))}),
    ("LxmertModel", {"l_layers": 1, "x_layers": 1, "r_layers": 1, "visual_feat_dim": 20}, lambda seed: {
        **padded(seed), "visual_feats": torch.randn(2, 5, 20, generator=draw(seed)), "visual_pos": torch.rand(2, 5, 4, generator=draw(seed))}),
    ("FlavaModel", {}, both(padded, pixels(rows=2))),
    ("GitModel", {}, both(tokens, pixels(rows=2))),
    ("LayoutLMModel", {"max_2d_position_embeddings": 128}, padded),
    ("LayoutLMv3Model", {"max_2d_position_embeddings": 128, "coordinate_size": 4, "shape_size": 8, "input_size": 32, "visual_embed": False}, padded),
    ("LlavaForConditionalGeneration", {"image_token_index": 5, "vision_config": {"model_type": "clip_vision_model", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                                                                                  "intermediate_size": 64, "image_size": 32, "patch_size": 8},
                                       "text_config": {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                                                       "intermediate_size": 64, "vocab_size": 128}}, lambda seed: image_and_words(seed, 16)),
    ("PaliGemmaForConditionalGeneration", {"image_token_index": 5, "projection_dim": 32, "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                                                                                     "intermediate_size": 64, "image_size": 32, "patch_size": 8},
                                           "text_config": {"model_type": "gemma", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                                                           "intermediate_size": 64, "vocab_size": 128, "head_dim": 8}}, lambda seed: image_and_prefix(seed, 16)),
    ("Blip2Model", {"text_config": {"model_type": "opt", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64, "vocab_size": 128, "word_embed_proj_dim": 32,
                                    "max_position_embeddings": 64}, "num_query_tokens": 4, "image_token_index": 5}, lambda seed: image_and_words(seed, 4)),
    ("PerceiverModel", {"num_latents": 8, "d_latents": 16, "d_model": 32, "num_self_attends_per_block": 2, "num_self_attention_heads": 2, "num_cross_attention_heads": 2},
     lambda seed: {"inputs": torch.randn(2, 12, 32, generator=draw(seed))}),
]  # fmt: skip


def image_and_words(seed: int, places: int) -> Inputs:
    """A sentence with `places` places for the parts of the image."""
    ids = words(seed, places + 6, rows=1)
    ids[ids == 5] = 6
    ids[0, 1 : 1 + places] = 5
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **pixels()(seed)}


def image_and_prefix(seed: int, places: int) -> Inputs:
    """With the words marked as those to attend to causally."""
    inputs = image_and_words(seed, places)
    return {**inputs, "token_type_ids": (inputs["input_ids"] != 5).long()}


SERIES: Table = [
    ("TimesFmModel", {}, lambda seed: {"past_values": torch.randn(2, 32, generator=draw(seed)), "past_values_padding": torch.zeros(2, 32), "freq": torch.zeros(2, 1, dtype=torch.long)}),
    ("PatchTSTModel", {"num_input_channels": 3, "context_length": 16, "patch_length": 4, "patch_stride": 4}, lambda seed: {"past_values": torch.randn(2, 16, 3, generator=draw(seed))}),
    ("PatchTSMixerModel", {"num_input_channels": 3, "context_length": 16, "patch_length": 4, "patch_stride": 4, "d_model": 16}, lambda seed: {"past_values": torch.randn(2, 16, 3, generator=draw(seed))}),
    ("DecisionTransformerModel", {"state_dim": 5, "act_dim": 3}, lambda seed: {
        "states": torch.randn(1, 6, 5, generator=draw(seed)), "actions": torch.randn(1, 6, 3, generator=draw(seed)), "rewards": torch.randn(1, 6, 1, generator=draw(seed)),
        "returns_to_go": torch.randn(1, 6, 1, generator=draw(seed)), "timesteps": torch.arange(6)[None], "attention_mask": torch.ones(1, 6)}),
]  # fmt: skip

TABLES = {
    "text": TEXT_ENCODERS, "decoder": DECODERS, "mixture of experts": EXPERTS, "state space": STATE_SPACE, "encoder-decoder": ENCODER_DECODERS,
    "vision": VISION, "audio": AUDIO, "multimodal": MULTIMODAL, "series": SERIES,
}  # fmt: skip

MODELS = [
    Model("transformers", kind, name, builder(name, changes), inputs)
    for kind, table in TABLES.items()
    for name, changes, inputs in table
]
