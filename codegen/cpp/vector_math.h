// Math functions on vectors for generated kernels, in the template language of vector_base.h.
//
// Greatest error against float64 references in units of the last place, over all finite arguments
// (subnormal ones included). tests/codegen/test_vector_math.py checks these numbers:
//
//     f32, here:  exp 1.0   exp2 0.8   expm1 1.5  log 0.9   log2 1.0   log10 1.0  log1p 1.4  sin 1.8  cos 1.9
//                 sinh 1.6  cosh 1.4   tanh 1.3   asinh 1.8  acosh 1.8  sigmoid 1.8  erf 1.0
//     Sleef:      1.0; erfc 1.5        f32: tan asin acos atan atanh erfc pow atan2      f64: all but sigmoid
//     lgamma:     Sleef's, 1.0 for x > 0; large absolute arguments overflow as in eager mode
//
// Results for NaN, infinities and signed zeros are those of the C library. Sleef is PyTorch's own copy,
// found in the loaded libtorch_cpu; if that lacks a function, each lane calls the C library.

//@ scale f32 needs:
// a * 2^n for whole n in [-252, 254], rounded once
FN V fl_scale(V a, V n) {
#if defined(__AVX512F__) && L == 16
  return (V)__builtin_ia32_scalefps512_mask(a, n, a, -1, 4);
#else
  const I k = __builtin_convertvector(n, I), h = k >> 1;
  return a * as<V>((h + 127) << 23) * as<V>((k - h + 127) << 23);
#endif
}

//@ exp_reduced f32 needs: fma
// e^x = p * 2^n: gives p, for x in [-104, 89]
FN V fl_exp_reduced(V x, V *n) {
  // Adding 1.5 * 2^23 rounds to a whole number.
  *n = fl_fma(x, splat<V>(0x1.715476p+0f), splat<V>(0x1.8p23f)) - 0x1.8p23f;
  V r = fl_fma(*n, splat<V>(-0x1.62e4p-1f), x);
  r = fl_fma(*n, splat<V>(-0x1.7f7d1cp-20f), r);
  V q = fl_fma(splat<V>(0x1.6a4b98p-10f), r, splat<V>(0x1.123e5cp-7f));
  q = fl_fma(q, r, splat<V>(0x1.5558bap-5f));
  q = fl_fma(q, r, splat<V>(0x1.55548cp-3f));
  q = fl_fma(q, r, splat<V>(0x1.fffffcp-2f));
  return fl_fma(q, r * r, r) + 1.f;
}

//@ exp_below f32 needs: exp_reduced scale
// e^x for x <= 89, or NaN
FN V fl_exp_below(V x) {
#if defined(__AVX512F__) && L == 16 && !defined(__clang__)
  // Lanes whose result is 0 (masked scores) have arbitrary values until the last instruction masks
  // them out. So there are no subnormal results, which are slow, and no selection. (21 means not
  // less than, so that NaN stays.)
  const unsigned short there = __builtin_ia32_cmpps512_mask(x, splat<V>(-104.f), 21, -1, 4);
  V n;
  const V p = fl_exp_reduced(x, &n);
  return (V)__builtin_ia32_scalefps512_mask(p, n, (V){}, there, 4);
#else
  const I zero = x < -104.f;
  V n;
  const V p = fl_exp_reduced(zero ? (V){} : x, &n), y = fl_scale(p, n);
  return zero ? (V){} : y;
#endif
}

//@ exp f32 needs: exp_below
FN V fl_exp(V x) {
#if defined(__AVX512F__) && L == 16 && !defined(__clang__)
  return fl_exp_below((V)__builtin_ia32_minps512_mask(splat<V>(89.f), x, x, -1, 4));
#else
  return fl_exp_below(89.f < x ? splat<V>(89.f) : x);
#endif
}

//@ exp_near f32 needs: exp_reduced
// for |x| <= 80, or NaN
FN V fl_exp_near(V x) {
  V n;
  const V p = fl_exp_reduced(x, &n);
  return as<V>(as<I>(p) + (__builtin_convertvector(n, I) << 23));
}

//@ exp2 f32 needs: fma scale
FN V fl_exp2(V x) {
  const I zero = x < -151.f;
  x = zero ? (V){} : x;
  x = 129.f < x ? splat<V>(129.f) : x;
  const V n = (x + 0x1.8p23f) - 0x1.8p23f, r = x - n;
  V p = fl_fma(splat<V>(0x1.417834p-13f), r, splat<V>(0x1.5f0f76p-10f));
  p = fl_fma(p, r, splat<V>(0x1.3b2ddcp-7f));
  p = fl_fma(p, r, splat<V>(0x1.c6af72p-5f));
  p = fl_fma(p, r, splat<V>(0x1.ebfbdcp-3f));
  p = fl_fma(p, r, splat<V>(0x1.62e43p-1f));
  const V y = fl_scale(fl_fma(p, r, splat<V>(1.f)), n);
  return zero ? (V){} : y;
}

//@ tiny f32
// Whether odd functions return x itself; true for subnormal numbers and -0.
FN I fl_tiny(V x) { return (as<I>(x) & 0x7fffffff) < as<int>(0x1p-40f); }

//@ expm1 f32 needs: fma tiny
FN V fl_expm1(V x) {
  V c = -18.f > x ? splat<V>(-18.f) : x;
  c = 89.f < c ? splat<V>(89.f) : c;
  const V n = fl_fma(c, splat<V>(0x1.715476p+0f), splat<V>(0x1.8p23f)) - 0x1.8p23f;
  V r = fl_fma(n, splat<V>(-0x1.62e4p-1f), c);
  r = fl_fma(n, splat<V>(-0x1.7f7d1cp-20f), r);
  V q = fl_fma(splat<V>(0x1.9e8f4ep-13f), r, splat<V>(0x1.6d405p-10f));
  q = fl_fma(q, r, splat<V>(0x1.1112cep-7f));
  q = fl_fma(q, r, splat<V>(0x1.5554f4p-5f));
  q = fl_fma(q, r, splat<V>(0x1.555554p-3f));
  q = fl_fma(q, r, splat<V>(0.5f));
  const V e = fl_fma(q, r * r, r);
  // Half of 2^n, because 2^n is not finite for n = 128.
  const V h = as<V>((__builtin_convertvector(n, I) + 126) << 23);
  const V y = fl_fma(h, e, h - 0.5f) * 2.f;
  return fl_tiny(x) ? x : y;
}

//@ log_reduced f32 needs: fma
// x = 2^k * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)): gives ln(1 + f) - f, for positive finite x
FN V fl_log_tail(V f) {
  V p = fl_fma(splat<V>(0x1.16a74cp-4f), f, splat<V>(-0x1.e0211p-4f));
  p = fl_fma(p, f, splat<V>(0x1.e6d1b6p-4f));
  p = fl_fma(p, f, splat<V>(-0x1.fbbf34p-4f));
  p = fl_fma(p, f, splat<V>(0x1.233318p-3f));
  p = fl_fma(p, f, splat<V>(-0x1.555fbep-3f));
  p = fl_fma(p, f, splat<V>(0x1.99a524p-3f));
  p = fl_fma(p, f, splat<V>(-0x1.fffff8p-3f));
  p = fl_fma(p, f, splat<V>(0x1.555546p-2f));
  const V z = f * f;
  return fl_fma(z, splat<V>(-0.5f), p * (f * z));
}
FN V fl_log_reduced(V x, V *k, V *f) {
  const I small = x < 0x1p-126f;
  const I bits = as<I>(small ? x * 0x1p23f : x), e = (bits - 0x3f3504f3) >> 23;
  *k = __builtin_convertvector(e - (small & 23), V);
  *f = as<V>(bits - (e << 23)) - 1.f;
  return fl_log_tail(*f);
}
// Sets the logarithms of 0, of negative numbers, of infinity and of NaN.
FN V fl_log_special(V x, V y) {
  y = x < __builtin_inff() ? y : x;
  y = x == 0.f ? splat<V>(-__builtin_inff()) : y;
  return x < 0.f ? splat<V>(__builtin_nanf("")) : y;
}

//@ log f32 needs: log_reduced
FN V fl_log(V x) {
  V k, f;
  const V t = fl_log_reduced(x, &k, &f);
  const V y = fl_fma(k, splat<V>(0x1.62e4p-1f), fl_fma(k, splat<V>(0x1.7f7d1cp-20f), t) + f);
  return fl_log_special(x, y);
}

//@ log2 f32 needs: log_reduced
FN V fl_log2(V x) {
  V k, f;
  const V t = fl_log_reduced(x, &k, &f);
  const V low = fl_fma(f + t, splat<V>(0x1.4ae0cp-26f), t * 0x1.715476p+0f);
  return fl_log_special(x, k + fl_fma(f, splat<V>(0x1.715476p+0f), low));
}

//@ log10 f32 needs: log_reduced
FN V fl_log10(V x) {
  V k, f;
  const V t = fl_log_reduced(x, &k, &f);
  V low = fl_fma(f + t, splat<V>(-0x1.5b235ep-27f), t * 0x1.bcb7b2p-2f);
  low = fl_fma(k, splat<V>(0x1.3509f8p-18f), low);
  return fl_log_special(x, fl_fma(k, splat<V>(0x1.344p-2f), fl_fma(f, splat<V>(0x1.bcb7b2p-2f), low)));
}

//@ log1p f32 needs: log_reduced
FN V fl_log1p(V x) {
  const V u = x + 1.f;
  const I e = (as<I>(u) - 0x3f3504f3) >> 23;
  // 1 + f = (1 + x) * 2^-e without the rounding of 1 + x. 2^-e is two factors, for e = 128.
  const I h = e >> 1;
  const V s = as<V>((127 - h) << 23), w = as<V>((127 - e + h) << 23);
  const V f = (x * s) * w + (s * w - 1.f), k = __builtin_convertvector(e, V);
  const V t = fl_log_tail(f);
  V y = fl_fma(k, splat<V>(0x1.62e4p-1f), fl_fma(k, splat<V>(0x1.7f7d1cp-20f), t) + f);
  y = x < __builtin_inff() ? y : x;
  y = x == 0.f ? x : x == -1.f ? splat<V>(-__builtin_inff()) : y;
  return x < -1.f ? splat<V>(__builtin_nanf("")) : y;
}

//@ logaddexp f32 f64 needs: exp log1p max min
FN V fl_logaddexp(V a, V b) {
  const V low = fl_min(a, b), high = fl_max(a, b);
  const V both = fl_log1p(fl_exp(low - high)) + high;
  return (low != high) | (low - low == 0) ? both : a;
}

//@ sin_tail f32 needs: fma
// sin(r + low) for |r| <= pi/2
FN V fl_sin_tail(V r, V low) {
  const V z = r * r;
  V p = fl_fma(splat<V>(-0x1.b6219ap-26f), z, splat<V>(0x1.72cdd2p-19f));
  p = fl_fma(p, z, splat<V>(-0x1.a023ccp-13f));
  p = fl_fma(p, z, splat<V>(0x1.111136p-7f));
  p = fl_fma(p, z, splat<V>(-0x1.555556p-3f)) * z;
  // Approximately low * cos r.
  return fl_fma(p, r, low * fl_fma(z, splat<V>(-0.4f), splat<V>(1.f))) + r;
}
// x - n * pi/2 in two parts, for |n| < 2^14: the first two products and sums are exact
FN V fl_minus_half_pis(V x, V n, V *low) {
  x = fl_fma(n, splat<V>(-0x1.92p+0f), x);
  x = fl_fma(n, splat<V>(-0x1.fb4p-12f), x);
  const V p = n * 0x1.4442d2p-24f, q = fl_fma(n, splat<V>(0x1.4442d2p-24f), -p), r = x - p;
  *low = fl_fma(n, splat<V>(0x1.ee59dap-50f), ((x - r) - p) - q);
  return r;
}

//@ any_far f32
FN bool fl_any_far(V x, float limit) {
  const I far = (as<I>(x) & 0x7fffffff) > as<int>(limit);
#if defined(__AVX512F__) && L == 16
  return __builtin_ia32_ptestmd512((I)far, (I)far, -1);
#else
  int any = 0;
  EACH for (int l = 0; l < L; l++) any |= far[l];
  return any;
#endif
}

//@ sin f32 needs: sin_tail any_far sin_sleef
FN V fl_sin(V x) {
  if (__builtin_expect(fl_any_far(x, 20000.f), 0)) return fl_sin_sleef(x);
  const V m = fl_fma(x, splat<V>(0x1.45f306p-2f), splat<V>(0x1.8p23f)), n = m - 0x1.8p23f;
  V low;
  const V r = fl_minus_half_pis(x, n + n, &low), y = fl_sin_tail(r, low);
  return x == 0.f ? x : as<V>(as<I>(y) ^ (as<I>(m) << 31));
}

//@ cos f32 needs: sin_tail any_far cos_sleef
FN V fl_cos(V x) {
  if (__builtin_expect(fl_any_far(x, 20000.f), 0)) return fl_cos_sleef(x);
  // cos x = +-sin(x - (n + 1/2) pi)
  const V m = fl_fma(x, splat<V>(0x1.45f306p-2f), splat<V>(-0.5f)) + 0x1.8p23f, n = m - 0x1.8p23f;
  V low;
  const V r = fl_minus_half_pis(x, n + n + 1.f, &low), y = fl_sin_tail(r, low);
  // Near 0, an error in the last place matters: in 1 - cos x, and if the result becomes an integer.
  const V a = as<V>(as<I>(x) & 0x7fffffff);
  return a < 0x1p-12f ? splat<V>(1.f) : as<V>(as<I>(y) ^ ~(as<I>(m) << 31) & (int)0x80000000);
}

//@ sin_unit f32 needs: fma
// for |x| <= 1, or NaN
FN V fl_sin_unit(V x) {
  const V z = x * x;
  V p = fl_fma(splat<V>(0x1.6df026p-19f), z, splat<V>(-0x1.a02012p-13f));
  p = fl_fma(p, z, splat<V>(0x1.11113ep-7f));
  p = fl_fma(p, z, splat<V>(-0x1.555556p-3f));
  const V y = fl_fma(p, x * z, x);
  return x == 0.f ? x : y;
}

//@ cos_unit f32 needs: fma
// for |x| <= 1, or NaN
FN V fl_cos_unit(V x) {
  const V z = x * x;
  V p = fl_fma(splat<V>(-0x1.268296p-22f), z, splat<V>(0x1.a02c24p-16f));
  p = fl_fma(p, z, splat<V>(-0x1.6c1712p-10f));
  p = fl_fma(p, z, splat<V>(0x1.555556p-5f));
  p = fl_fma(p, z, splat<V>(-0.5f));
  return fl_fma(p, z, splat<V>(1.f));
}

//@ tanh f32 needs: exp_near
FN V fl_tanh(V x) {
  const V a = as<V>(as<I>(x) & 0x7fffffff), z = x * x;
  V p = fl_fma(splat<V>(0x1.18af22p-9f), z, splat<V>(-0x1.0c00a8p-7f));
  p = fl_fma(p, z, splat<V>(0x1.639496p-6f));
  p = fl_fma(p, z, splat<V>(-0x1.b9f04cp-5f));
  p = fl_fma(p, z, splat<V>(0x1.111076p-3f));
  p = fl_fma(p, z, splat<V>(-0x1.555554p-2f));
  const V near = fl_fma(p, z * x, x);
  const V c = 10.f < a ? splat<V>(10.f) : a;
  const V far = 1.f - 2.f / (fl_exp_near(c + c) + 1.f);
  const V y = a < 0.625f ? near : as<V>(as<I>(far) | (as<I>(x) & (int)0x80000000));
  return x == 0.f ? x : y;
}

//@ sigmoid f32 needs: exp_below
FN V fl_sigmoid(V x) {
  // e^-|x| never overflows, and small results keep their digits.
  const V e = fl_exp_below(as<V>(as<I>(x) | (int)0x80000000));
  const V d = e + 1.f, y = (x < 0.f ? e : splat<V>(1.f)) / d;
  // The rounding error of the sum d.
  const V low = e - (d - 1.f);
  return fl_fma(-y * low, x < 0.f ? 1.f - y : y, y);
}

//@ sigmoid f64 needs: exp
FN V fl_sigmoid(V x) {
  const V e = fl_exp(x < 0. ? x : -x);
  return (x < 0. ? e : splat<V>(1.)) / (e + 1.);
}

//@ sinh f32 needs: exp_reduced scale tiny
FN V fl_sinh(V x) {
  const V a = as<V>(as<I>(x) & 0x7fffffff), z = x * x;
  V p = fl_fma(splat<V>(0x1.756c1ep-19f), z, splat<V>(0x1.a022bcp-13f));
  p = fl_fma(p, z, splat<V>(0x1.1110ep-7f));
  p = fl_fma(p, z, splat<V>(0x1.555556p-3f));
  const V near = fl_fma(p, z * x, x);
  V n;
  const V c = 90.f < a ? splat<V>(90.f) : a, half = fl_exp_reduced(c, &n), e = fl_scale(half, n - 1.f);
  const V far = e - 0.25f / e;
  const V y = a < 1.f ? near : as<V>(as<I>(far) | (as<I>(x) & (int)0x80000000));
  return fl_tiny(x) ? x : y;
}

//@ cosh f32 needs: exp_reduced scale
FN V fl_cosh(V x) {
  const V a = as<V>(as<I>(x) & 0x7fffffff);
  V n;
  const V c = 90.f < a ? splat<V>(90.f) : a, half = fl_exp_reduced(c, &n), e = fl_scale(half, n - 1.f);
  return e + 0.25f / e;
}

//@ asinh f32 needs: log1p sqrt tiny
FN V fl_asinh(V x) {
  const V a = as<V>(as<I>(x) & 0x7fffffff), z = a * a;
  const I far = a > 0x1p26f;
  V y = fl_log1p(far ? a : a + z / (1.f + fl_sqrt(z + 1.f)));
  y = y + (far ? splat<V>(0x1.62e43p-1f) : (V){});
  return fl_tiny(x) ? x : as<V>(as<I>(y) | (as<I>(x) & (int)0x80000000));
}

//@ acosh f32 needs: log1p sqrt
FN V fl_acosh(V x) {
  const I far = x > 0x1p26f;
  const V t = x - 1.f;
  const V y = fl_log1p(far ? x : t + fl_sqrt(fl_fma(t, t, t + t)));
  return x < 1.f ? splat<V>(__builtin_nanf("")) : y + (far ? splat<V>(0x1.62e43p-1f) : (V){});
}

//@ asinh f64 needs: asinh_sleef log
FN V fl_asinh(V x) {
  // Sleef squares its argument; the square is infinite from 1.4e154 on.
  const V a = as<V>(as<I>(x) & 0x7fffffffffffffffLL);
  const I far = a > 0x1p28;
  const V y = fl_log(far ? a : splat<V>(1.)) + 0x1.62e42fefa39efp-1;
  return far ? as<V>(as<I>(y) | (as<I>(x) & (long long)0x8000000000000000ULL)) : fl_asinh_sleef(x);
}

//@ acosh f64 needs: acosh_sleef log
FN V fl_acosh(V x) {
  const I far = x > 0x1p28;
  const V y = fl_log(far ? x : splat<V>(1.)) + 0x1.62e42fefa39efp-1;
  return far ? y : fl_acosh_sleef(x);
}

//@ erf f32 needs: exp_near
FN V fl_erf(V x) {
  const V a = as<V>(as<I>(x) & 0x7fffffff), z = x * x;
  V p = fl_fma(splat<V>(0x1.4f675ep-14f), z, splat<V>(-0x1.a60a2ep-11f));
  p = fl_fma(p, z, splat<V>(0x1.544a1ap-8f));
  p = fl_fma(p, z, splat<V>(-0x1.b8011ap-6f));
  p = fl_fma(p, z, splat<V>(0x1.ce2d64p-4f));
  p = fl_fma(p, z, splat<V>(-0x1.81274p-2f));
  p = fl_fma(p, z, splat<V>(0x1.06eba8p-3f));
  const V near = fl_fma(p, x, x);
  // erf t = 1 - e^(t * q(t) - t)
  const V t = 4.f < a ? splat<V>(4.f) : a;
  V q = fl_fma(splat<V>(-0x1.78d116p-17f), t, splat<V>(0x1.52795cp-12f));
  q = fl_fma(q, t, splat<V>(-0x1.dd6ba8p-9f));
  q = fl_fma(q, t, splat<V>(0x1.855122p-6f));
  q = fl_fma(q, t, splat<V>(-0x1.b32568p-4f));
  q = fl_fma(q, t, splat<V>(-0x1.45328ep-1f));
  q = fl_fma(q, t, splat<V>(-0x1.0778dcp-3f));
  const V far = 1.f - fl_exp_near(fl_fma(q, t, -t));
  const V y = a < 0.92f ? near : as<V>(as<I>(far) | (as<I>(x) & (int)0x80000000));
  return x == 0.f ? x : y;
}

//@ mod f32 f64 needs: fmod
// sign of the divisor
FN V fl_mod(V a, V b) {
  const V r = fl_fmod(a, b);
  return (r != 0) & ((r < 0) != (b < 0)) ? r + b : r;
}

//@ fmod f32
FN V fl_fmod(V a, V b) { V r; EACH for (int l = 0; l < L; l++) r[l] = __builtin_fmodf(a[l], b[l]); return r; }

//@ fmod f64
FN V fl_fmod(V a, V b) { V r; EACH for (int l = 0; l < L; l++) r[l] = __builtin_fmod(a[l], b[l]); return r; }

//@ nextafter f32
FN V fl_nextafter(V a, V b) { V r; EACH for (int l = 0; l < L; l++) r[l] = __builtin_nextafterf(a[l], b[l]); return r; }

//@ nextafter f64
FN V fl_nextafter(V a, V b) { V r; EACH for (int l = 0; l < L; l++) r[l] = __builtin_nextafter(a[l], b[l]); return r; }

//@ torch
extern "C" void *dlopen(const char *, int);
extern "C" void *dlsym(void *, const char *);
// 5 is RTLD_LAZY | RTLD_NOLOAD: only if the library is loaded already.
static void *const fl_torch = dlopen("libtorch_cpu.so", 5);
template <class F> static F fl_find(const char *name, F otherwise) {
  void *const symbol = fl_torch ? dlsym(fl_torch, name) : 0;
  return symbol ? (F)symbol : otherwise;
}
