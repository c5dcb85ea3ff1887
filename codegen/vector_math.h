// Vector math of generated kernels, in the template language of vector_base.h.

//@ exp f32 needs: fma rint
FN V fl_exp(V x) {
  const V c = x < -104.f ? splat<V>(-104.f) : x > 89.f ? splat<V>(89.f) : x;
  const V n = fl_rint<0>(c * 0x1.715476p+0f);
  V r = fl_fma(n, splat<V>(-0x1.62e4p-1f), c);
  r = fl_fma(n, splat<V>(-0x1.7f7d1cp-20f), r);
  V p = splat<V>(0x1.6b9f1ep-10f);
  p = fl_fma(p, r, splat<V>(0x1.123bbap-7f));
  p = fl_fma(p, r, splat<V>(0x1.555b98p-5f));
  p = fl_fma(p, r, splat<V>(0x1.55548ep-3f));
  p = fl_fma(p, r, splat<V>(0x1.fffff8p-2f));
  p = fl_fma(p, r * r, r) + 1.f;
  const I k = __builtin_convertvector(n, I), h = k >> 1;
  return p * as<V>((h + 127) << 23) * as<V>((k - h + 127) << 23);
}

//@ log f32 needs: fma
FN V fl_log(V x) {
  // Subnormal numbers are scaled into the normal range first.
  const I small = x < 0x1p-126f;
  const V y = small ? x * 0x1p23f : x;
  const I bits = as<I>(y), e = (bits - 0x3f3504f3) >> 23;
  const V f = as<V>(bits - (e << 23)) - 1.f;
  const V k = __builtin_convertvector(e, V) - (small ? splat<V>(23.f) : (V){});
  const V z = f * f;
  V p = splat<V>(7.0376836292e-2f);
  p = fl_fma(p, f, splat<V>(-1.1514610310e-1f));
  p = fl_fma(p, f, splat<V>(1.1676998740e-1f));
  p = fl_fma(p, f, splat<V>(-1.2420140846e-1f));
  p = fl_fma(p, f, splat<V>(1.4249322787e-1f));
  p = fl_fma(p, f, splat<V>(-1.6668057665e-1f));
  p = fl_fma(p, f, splat<V>(2.0000714765e-1f));
  p = fl_fma(p, f, splat<V>(-2.4999993993e-1f));
  p = fl_fma(p, f, splat<V>(3.3333331174e-1f));
  p = fl_fma(p * f, z, k * -2.12194440e-4f);
  p = fl_fma(z, splat<V>(-0.5f), p);
  const V r = fl_fma(k, splat<V>(0.693359375f), f + p);
  const V inf = splat<V>(__builtin_inff());
  return x > 0 ? (x == inf ? inf : r) : x == 0 ? -inf : splat<V>(__builtin_nanf(""));
}
