// The table of library ops that run through PyTorch's stable C interface: one row per op.
//
// A row names the C function, its parameters, and how they are passed.  An op that is not here, or
// that gets an argument the row does not support, is called by the host; so rows only affect
// speed.
//
// Types of parameters: T tensor, O tensor or None, L tensors, M tensors or None each, i integer, I integers,
// b bool, B bool or None, d number, D number or None, N only None.  Integers among the results are
// dropped.
#include "shims.h"

#include <cstring>

namespace frameloom {

namespace {

using V = ShimValue;
using H = Handle;
using I = int64_t;

template <typename... Arguments> int32_t call(void *function, Arguments... arguments) {
    return reinterpret_cast<int32_t (*)(Arguments...)>(function)(arguments...);
}

constexpr Shim SHIMS[] = {
    {"aten.mm.default", "mm_out", 1, true, "T self, T mat2",
     [](void *f, const V *v, H *r) { return call(f, r[0], v[0].tensor, v[1].tensor); }},
    {"aten.bmm.default", "bmm_out", 1, true, "T self, T mat2",
     [](void *f, const V *v, H *r) { return call(f, r[0], v[0].tensor, v[1].tensor); }},
    {"aten._int_mm.default", "_int_mm_out", 1, true, "T self, T mat2",
     [](void *f, const V *v, H *r) { return call(f, r[0], v[0].tensor, v[1].tensor); }},
    {"aten.addmm.default", "addmm_out", 1, true, "T self, T mat1, T mat2, d beta=1, d alpha=1",
     [](void *f, const V *v, H *r) {
         return call(f, r[0], v[0].tensor, v[1].tensor, v[2].tensor, v[3].number, v[4].number);
     }},
    {"aten.baddbmm.default", "baddbmm_out", 1, true, "T self, T batch1, T batch2, d beta=1, d alpha=1",
     [](void *f, const V *v, H *r) {
         return call(f, r[0], v[0].tensor, v[1].tensor, v[2].tensor, v[3].number, v[4].number);
     }},
    {"aten.convolution.default", "convolution", 1, false,
     "T input, T weight, O bias, I stride, I padding, I dilation, b transposed, I output_padding, i groups",
     [](void *f, const V *v, H *r) {
         return call(f, v[0].tensor, v[1].tensor, v[2].optional_tensor(), v[3].integers, v[3].count,
                     v[4].integers, v[4].count, v[5].integers, v[5].count, (int32_t)v[6].integer,
                     v[7].integers, v[7].count, v[8].integer, &r[0]);
     }},
    {"aten._scaled_dot_product_flash_attention_for_cpu.default",
     "_scaled_dot_product_flash_attention_for_cpu", 2, false,
     "T query, T key, T value, d dropout_p=0, b is_causal=0, O attn_mask=None, D scale=None",
     [](void *f, const V *v, H *r) {
         return call(f, v[0].tensor, v[1].tensor, v[2].tensor, v[3].number, (int32_t)v[4].integer,
                     v[5].optional_tensor(), v[6].optional_number(), &r[0], &r[1]);
     }},
    {"aten.cat.default", "cat", 1, false, "L tensors, i dim=0",
     [](void *f, const V *v, H *r) { return call(f, v[0].tensors, v[0].count, v[1].integer, &r[0]); }},
    {"aten.max_pool2d_with_indices.default", "max_pool2d_with_indices", 2, false,
     "T self, I kernel_size, I stride, I padding, I dilation, b ceil_mode=0",
     [](void *f, const V *v, H *r) {
         return call(f, v[0].tensor, v[1].integers, v[1].count, v[2].integers, v[2].count, v[3].integers,
                     v[3].count, v[4].integers, v[4].count, (int32_t)v[5].integer, &r[0], &r[1]);
     }},
    {"aten._adaptive_avg_pool2d.default", "_adaptive_avg_pool2d", 1, false, "T self, I output_size",
     [](void *f, const V *v, H *r) { return call(f, v[0].tensor, v[1].integers, v[1].count, &r[0]); }},
    {"aten.topk.default", "topk", 2, false, "T self, i k, i dim=-1, b largest=1, b sorted=1",
     [](void *f, const V *v, H *r) {
         return call(f, v[0].tensor, v[1].integer, v[2].integer, (int32_t)v[3].integer, (int32_t)v[4].integer,
                     &r[0], &r[1]);
     }},
    {"aten.sort.default", "sort", 2, false, "T self, i dim=-1, b descending=0",
     [](void *f, const V *v, H *r) {
         return call(f, v[0].tensor, v[1].integer, (int32_t)v[2].integer, &r[0], &r[1]);
     }},
    {"aten.sort.stable", "sort_stable", 2, false, "T self, B stable, i dim=-1, b descending=0",
     [](void *f, const V *v, H *r) {
         return call(f, v[0].tensor, v[1].optional_flag(), v[2].integer, (int32_t)v[3].integer, &r[0], &r[1]);
     }},
    {"aten.cumsum.default", "cumsum", 1, false, "T self, i dim, N dtype=None",
     [](void *f, const V *v, H *r) {
         return call(f, v[0].tensor, v[1].integer, (const int32_t *)nullptr, &r[0]);
     }},
    {"aten.cumprod.default", "cumprod", 1, false, "T self, i dim, N dtype=None",
     [](void *f, const V *v, H *r) {
         return call(f, v[0].tensor, v[1].integer, (const int32_t *)nullptr, &r[0]);
     }},
    {"aten.logcumsumexp.default", "logcumsumexp", 1, false, "T self, i dim",
     [](void *f, const V *v, H *r) { return call(f, v[0].tensor, v[1].integer, &r[0]); }},
    {"aten.index.Tensor", "index_Tensor", 1, false, "T self, M indices",
     [](void *f, const V *v, H *r) { return call(f, v[0].tensor, v[1].optionals, v[1].count, &r[0]); }},
    {"aten.index_put.default", "index_put", 1, false, "T self, M indices, T values, b accumulate=0",
     [](void *f, const V *v, H *r) {
         return call(f, v[0].tensor, v[1].optionals, v[1].count, v[2].tensor, (int32_t)v[3].integer, &r[0]);
     }},
    {"aten.avg_pool2d.default", "avg_pool2d", 1, false,
     "T self, I kernel_size, I stride, I padding, b ceil_mode=0, b count_include_pad=1, N "
     "divisor_override=None",
     [](void *f, const V *v, H *r) {
         return call(f, v[0].tensor, v[1].integers, v[1].count, v[2].integers, v[2].count, v[3].integers,
                     v[3].count, (int32_t)v[4].integer, (int32_t)v[5].integer, (const int64_t *)nullptr,
                     &r[0]);
     }},
    {"aten._scaled_dot_product_flash_attention.default", "_scaled_dot_product_flash_attention", 9, false,
     "T query, T key, T value, d dropout_p=0, b is_causal=0, b return_debug_mask=0, D scale=None",
     [](void *f, const V *v, H *r) {
         int64_t longest[2];
         return call(f, v[0].tensor, v[1].tensor, v[2].tensor, v[3].number, (int32_t)v[4].integer,
                     (int32_t)v[5].integer, v[6].optional_number(), &r[0], &r[1], &r[2], &r[3], &longest[0],
                     &longest[1], &r[6], &r[7], &r[8]);
     }},
    {"aten._scaled_dot_product_efficient_attention.default", "_scaled_dot_product_efficient_attention", 4,
     false,
     "T query, T key, T value, O attn_bias, b compute_log_sumexp, d dropout_p=0, b is_causal=0, D scale=None",
     [](void *f, const V *v, H *r) {
         return call(f, v[0].tensor, v[1].tensor, v[2].tensor, v[3].optional_tensor(), (int32_t)v[4].integer,
                     v[5].number, (int32_t)v[6].integer, v[7].optional_number(), &r[0], &r[1], &r[2], &r[3]);
     }},
    {"aten._scaled_dot_product_cudnn_attention.default", "_scaled_dot_product_cudnn_attention", 9, false,
     "T query, T key, T value, O attn_bias, b compute_log_sumexp, d dropout_p=0, b is_causal=0, "
     "b return_debug_mask=0, D scale=None",
     [](void *f, const V *v, H *r) {
         int64_t longest[2];
         return call(f, v[0].tensor, v[1].tensor, v[2].tensor, v[3].optional_tensor(), (int32_t)v[4].integer,
                     v[5].number, (int32_t)v[6].integer, (int32_t)v[7].integer, v[8].optional_number(), &r[0],
                     &r[1], &r[2], &r[3], &longest[0], &longest[1], &r[6], &r[7], &r[8]);
     }},
    {"aten.native_dropout.default", "native_dropout", 2, false, "T input, d p, B train",
     [](void *f, const V *v, H *r) {
         return call(f, v[0].tensor, v[1].number, v[2].optional_flag(), &r[0], &r[1]);
     }},
    {"aten.mul.Tensor", "mul_Tensor", 1, false, "T self, T other",
     [](void *f, const V *v, H *r) { return call(f, v[0].tensor, v[1].tensor, &r[0]); }},
};

} // namespace

std::vector<ShimParameter> shim_parameters(const Shim &shim) {
    std::vector<ShimParameter> result;
    for (const char *at = shim.parameters; *at;) {
        const char *end = at + std::strcspn(at, ",");
        std::string text(at + 2, end);
        size_t equals = text.find('=');
        bool has = equals != std::string::npos;
        result.push_back({*at, text.substr(0, equals), has ? text.substr(equals + 1) : "", has});
        at = *end ? end + 2 : end;
    }
    return result;
}

const Shim *shim_find(std::string target) {
    if (target.size() > 4 && target.compare(target.size() - 4, 4, ".out") == 0)
        target.replace(target.size() - 4, 4, ".default");
    for (const Shim &shim : SHIMS)
        if (target == shim.target) return &shim;
    return nullptr;
}

std::vector<const char *> shim_targets() {
    std::vector<const char *> targets;
    for (const Shim &shim : SHIMS) targets.push_back(shim.target);
    return targets;
}

} // namespace frameloom
