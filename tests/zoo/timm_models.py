"""Families of timm, each in its smallest form: fewer layers and smaller images than the published ones, random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.zoo.models import Inputs, Model

# name, size of the image, arguments of timm.create_model beside it
CONVOLUTIONAL: list[tuple[str, int, dict[str, Any]]] = [
    ("resnet18", 64, {}),
    ("resnet10t", 64, {}),
    ("resnetv2_18", 64, {}),
    ("resnetv2_50x1_bit", 64, {}),
    ("resnetblur18", 64, {}),
    ("seresnet18", 64, {}),
    ("ecaresnet26t", 64, {"layers": (1, 1, 1, 1)}),
    ("skresnet18", 64, {}),
    ("resnest14d", 64, {}),
    ("res2net50_14w_8s", 64, {"layers": (1, 1, 1, 1)}),
    ("legacy_seresnet18", 64, {}),
    ("tresnet_m", 64, {"layers": (1, 1, 1, 1)}),
    ("regnetx_002", 64, {}),
    ("regnety_002", 64, {}),
    ("regnetz_005", 64, {}),
    ("densenet121", 64, {"block_config": (2, 2, 2, 2)}),
    ("rdnet_tiny", 64, {"num_init_features": 16, "growth_rates": (8,) * 4, "num_blocks_list": (1,) * 4,
                        "is_downsample_block": (None, True, True, True), "transition_compression_ratio": 0.5}),
    ("dla46_c", 64, {}),
    ("dpn48b", 64, {}),
    ("vgg11", 224, {}),
    ("vovnet39a", 64, {}),
    ("ese_vovnet19b_slim", 64, {}),
    ("darknet17", 64, {}),
    ("cs3darknet_s", 64, {}),
    ("cspnext_tiny", 64, {}),
    ("hrnet_w18_small", 64, {}),
    ("hgnetv2_b0", 64, {}),
    ("lcnetv2_small", 64, {}),
    ("inception_v3", 128, {}),
    ("inception_v4", 128, {}),
    ("inception_resnet_v2", 128, {}),
    ("xception", 96, {}),
    ("xception41", 96, {}),
    ("nasnetalarge", 96, {"stem_size": 24, "num_features": 96 * 4, "channel_multiplier": 2}),
    ("selecsls42", 64, {}),
    ("rexnet_100", 64, {}),
    ("efficientnet_b0", 64, {}),
    ("efficientnetv2_rw_t", 64, {}),
    ("mixnet_s", 64, {}),
    ("mnasnet_050", 64, {}),
    ("mobilenetv2_035", 64, {}),
    ("tf_efficientnet_b0", 64, {}),
    ("fbnetv3_b", 64, {}),
    ("lcnet_035", 64, {}),
    ("mobilenetv3_small_050", 64, {}),
    ("mobilenetv4_conv_small_035", 64, {}),
    ("mobilenetv4_hybrid_medium_075", 64, {}),
    ("hardcorenas_a", 64, {}),
    ("ghostnet_050", 64, {}),
    ("ghostnetv2_100", 64, {}),
    ("ghostnetv3_050", 64, {}),
    ("repghostnet_050", 64, {}),
    ("repvgg_a0", 64, {}),
    ("mobileone_s0", 64, {}),
    ("gernet_s", 64, {}),
    ("convnext_atto", 64, {}),
    ("convnextv2_atto", 64, {}),
    ("convmixer_1024_20_ks9_p14", 56, {}),
    ("inception_next_atto", 64, {}),
    ("mambaout_femto", 64, {}),
    ("fasternet_t0", 64, {}),
    ("starnet_s050", 64, {}),
    ("repvit_m0_9", 64, {}),
    ("focalnet_tiny_srf", 64, {}),
    ("nf_resnet26", 64, {}),
    ("test_nfnet", 64, {}),
    ("lambda_resnet26t", 64, {"img_size": 64}),
    ("halonet26t", 256, {}),
    ("botnet26t_256", 128, {"img_size": 128}),
]  # fmt: skip

ATTENTION: list[tuple[str, int, dict[str, Any]]] = [
    ("vit_tiny_patch16_224", 64, {"img_size": 64, "depth": 2}),
    ("vit_small_patch16_dinov3", 64, {"img_size": 64, "depth": 2, "embed_dim": 96, "num_heads": 3}),
    ("vit_small_patch14_reg4_dinov2", 56, {"img_size": 56, "depth": 2}),
    ("vit_relpos_small_patch16_224", 64, {"img_size": 64, "depth": 2}),
    ("vit_srelpos_small_patch16_224", 64, {"img_size": 64, "depth": 2}),
    ("vit_tiny_r_s16_p8_224", 64, {"img_size": 64, "depth": 2}),
    ("samvit_base_patch16_224", 64, {"img_size": 64, "depth": 2, "embed_dim": 96, "num_heads": 3, "global_attn_indexes": (1,)}),
    ("deit_tiny_distilled_patch16_224", 64, {"img_size": 64, "depth": 2}),
    ("deit3_small_patch16_224", 64, {"img_size": 64, "depth": 2}),
    ("beit_base_patch16_224", 64, {"img_size": 64, "depth": 2, "embed_dim": 96, "num_heads": 3}),
    ("eva02_tiny_patch14_224", 56, {"img_size": 56, "depth": 2}),
    ("aimv2_1b_patch14_224", 56, {"img_size": 56, "depth": 2, "embed_dim": 96, "num_heads": 3}),
    ("naflexvit_base_patch16_gap", 64, {"depth": 2, "embed_dim": 96, "num_heads": 3}),
    ("hiera_tiny_224", 224, {"stages": (1, 1, 1, 1), "embed_dim": 32}),
    ("sam2_hiera_tiny", 256, {}),
    ("cait_xxs24_224", 64, {"img_size": 64, "depth": 2}),
    ("coat_lite_tiny", 64, {"img_size": 64}),
    ("convit_tiny", 64, {"img_size": 64, "depth": 4, "local_up_to_layer": 2}),
    ("crossvit_tiny_240", 240, {"depth": [[1, 2, 0], [1, 2, 0], [1, 2, 0]]}),
    ("davit_tiny", 64, {"depths": (1, 1, 1, 1), "embed_dims": (32, 64, 96, 128), "num_heads": (1, 2, 3, 4)}),
    ("edgenext_xx_small", 64, {}),
    ("efficientformer_l1", 224, {}),
    ("efficientformerv2_s0", 224, {}),
    ("efficientvim_m1", 224, {}),
    ("efficientvit_b0", 64, {}),
    ("efficientvit_m0", 224, {}),
    ("fastvit_t8", 64, {}),
    ("gcvit_xxtiny", 224, {}),
    ("iformer_t", 64, {}),
    ("levit_128s", 224, {}),
    ("lowformer_b0", 64, {}),
    ("maxvit_pico_rw_256", 64, {"img_size": 64}),
    ("coatnet_pico_rw_224", 64, {"img_size": 64}),
    ("poolformer_s12", 64, {}),
    ("caformer_s18", 64, {}),
    ("convformer_s18", 64, {}),
    ("mixer_s32_224", 64, {"img_size": 64}),
    ("gmlp_ti16_224", 64, {"img_size": 64}),
    ("resmlp_12_224", 64, {"img_size": 64}),
    ("mobilevit_xxs", 64, {}),
    ("mobilevitv2_050", 64, {}),
    ("mvitv2_tiny", 64, {"img_size": 64}),
    ("nest_tiny", 224, {}),
    ("nextvit_small", 64, {"depths": (1, 1, 5, 1)}),
    ("pit_ti_224", 224, {}),
    ("pvt_v2_b0", 64, {}),
    ("sequencer2d_s", 64, {"img_size": 64, "layers": (1, 1, 1, 1), "embed_dims": (48, 96, 96, 96), "hidden_sizes": (12, 24, 24, 24)}),
    ("shvit_s1", 64, {}),
    ("swiftformer_xs", 64, {}),
    ("swin_tiny_patch4_window7_224", 64, {"img_size": 64, "depths": (1, 2, 2, 1), "embed_dim": 48}),
    ("swinv2_tiny_window8_256", 64, {"img_size": 64, "depths": (1, 2, 2, 1), "embed_dim": 48}),
    ("swinv2_cr_tiny_224", 64, {"img_size": 64, "depths": (1, 2, 2, 1), "embed_dim": 48}),
    ("tiny_vit_5m_224", 224, {}),
    ("tnt_s_patch16_224", 64, {"img_size": 64, "depth": 2}),
    ("twins_pcpvt_small", 64, {"img_size": 64, "depths": (1, 1, 1, 1)}),
    ("twins_svt_small", 64, {"img_size": 64, "depths": (1, 1, 2, 1)}),
    ("visformer_tiny", 64, {"img_size": 64, "depth": (2, 1, 1)}),
    ("vitamin_small_224", 64, {"img_size": 64}),
    ("volo_d1_224", 64, {"img_size": 64}),
    ("xcit_nano_12_p16_224", 64, {"img_size": 64, "depth": 2}),
    ("cpubone_nano", 64, {}),
    ("csatv2", 64, {}),
]  # fmt: skip


def builder(name: str, options: dict[str, Any]) -> Callable[[], Any]:
    def build() -> Any:
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10, **options)

    return build


def images(size: int) -> Callable[[int], Inputs]:
    def inputs(seed: int) -> Inputs:
        return {"x": torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(seed))}

    return inputs


MODELS = [
    Model("timm", kind, name, builder(name, options), images(size))
    for kind, table in (("convolutional", CONVOLUTIONAL), ("attention", ATTENTION))
    for name, size, options in table
]
