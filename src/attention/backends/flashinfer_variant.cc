#include "tenon/attention/backends/flashinfer_variant.h"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::backends {
namespace {

#define TN_TEXT_OF(...) #__VA_ARGS__
#define TN_TEXT(...) TN_TEXT_OF(__VA_ARGS__)
constexpr const char* kInterface = TN_TEXT(TN_VARIANT_INTERFACE);

// Vectors of sixteen floats in GNU's extension, which every compiler we ask for has; a tile is two
// of them. Exp: 2^n by its bits times a polynomial of the rest (Cephes' expf), NaN passed on.
constexpr const char* kVectors = R"(
typedef float F __attribute__((vector_size(64)));
typedef int I __attribute__((vector_size(64)));
static inline F All(float x) { return F{} + x; }
static inline F Load(const float* p) { F x; __builtin_memcpy(&x, p, 64); return x; }
static inline void Store(float* p, F x) { __builtin_memcpy(p, &x, 64); }
static inline F Exp(F x) {
  const F c = x > 88.0f ? All(88.0f) : (x < -87.0f ? All(-87.0f) : x);
  const F n = (c * 1.44269504088896341f + 12582912.0f) - 12582912.0f;
  const F r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
  F p = All(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const I bits = (__builtin_convertvector(n, I) + 127) << 23;
  F two;
  __builtin_memcpy(&two, &bits, 64);
  const F y = x < -87.0f ? F{} : p * two;
  return x == x ? y : x;
}
static inline float Exp1(float x) { return Exp(All(x))[0]; }
)";

// kTile keys at a time, from multiples of kTile, so that a row's sums do not depend on the others:
// keys transposed, values as rows; then every query (row, head) that sees some of them.
constexpr const char* kKernel = R"(
enum { kTile = 32 };
static const float kNone = -__builtin_inff();

struct Range { long long begin, end; };
static inline Range Seen(const TnVariantArgs* a, long long row) {
  const long long p = a->position + row;
  Range r = {a->key_begin, a->key_end};
  const bool causal = a->causal && !(kMask && a->mask);
  if (causal && r.end > p + 1) r.end = p + 1;
  if (kWindow) {
    if (r.begin < p - a->window + 1) r.begin = p - a->window + 1;
    if (r.end > p + a->window) r.end = p + a->window;
  }
  return r;
}

static inline const Stored* Row(const TnVariantArgs* a, const char* base, long long slot,
                                long long j) {
  return (const Stored*)(base + a->pages[j / kPage] * a->page_bytes + j % kPage * slot);
}

static inline float Tanh(float x) {
  const float e = Exp1(-2.0f * (x < 0 ? -x : x));
  const float t = (1.0f - e) / (1.0f + e);
  return x < 0 ? -t : t;
}

static inline float ScoreOf(const TnVariantArgs* a, float dot, long long row, long long g,
                            long long key) {
  const long long query = a->position + row;
  const long long head = a->first_head + g;
  (void)query, (void)head, (void)key;
  float score = dot * a->scale;
  if (kSoftcap) score = a->softcap * Tanh(score / a->softcap);
  if (kAlibi) {
    const long long ahead = key - query;
    score -= a->alibi[head] * (float)(ahead < 0 ? -ahead : ahead);
  }
  score = LogitsHook(score, query, key, head);
  if (kMask && a->mask) {
    const long long bit = (a->mask_row + row) * a->mask_columns + key;
    if (!(a->mask[bit / 8] >> bit % 8 & 1)) return kNone;
  }
  return MaskHook(query, key, head) ? score : kNone;
}

// One query and the keys [begin, end) of the tile at `first`.
static void AddTile(const TnVariantArgs* a, const float* kt, const float* vt, float* q,
                    long long first, Range seen, long long row, long long g) {
  float* state = a->state + row * a->state_row + g * a->state_head;
  const float* from = a->q + row * a->q_row + g * a->q_head;
  for (int d = 0; d < kK; ++d)
    q[d] = QueryHook(from[d], d, a->position + row, a->first_head + g);
  F low[2] = {}, high[2] = {};  // even and odd columns
  for (int d = 0; d < kK; ++d) {
    low[d & 1] += All(q[d]) * Load(kt + d * kTile);
    high[d & 1] += All(q[d]) * Load(kt + d * kTile + 16);
  }
  float s[kTile];
  Store(s, low[0] + low[1]);
  Store(s + 16, high[0] + high[1]);
  float top = state[kV];
  bool unordered = false;
  for (int t = 0; t < kTile; ++t) {
    const bool in = t >= seen.begin - first && t < seen.end - first;
    s[t] = in ? ScoreOf(a, s[t], row, g, first + t) : kNone;
    unordered |= s[t] != s[t];
    top = s[t] > top ? s[t] : top;
  }
  if (top == kNone) {
    if (unordered) state[kV + 1] = __builtin_nanf("");
    return;
  }
  const float keep = Exp1(state[kV] - top);
  F p[2] = {Exp(Load(s) - top), Exp(Load(s + 16) - top)};
  Store(s, p[0]);
  Store(s + 16, p[1]);
  float sum = 0;
  const F both = p[0] + p[1];
  for (int t = 0; t < 16; ++t) sum += both[t];
  for (int c = 0; c < kV; ++c) state[c] *= keep;
  for (long long t = seen.begin - first; t < seen.end - first; ++t) {
    const float* v = vt + t * kV;
    const float w = s[t];
    for (int c = 0; c < kV; ++c) state[c] += w * v[c];
  }
  state[kV] = top;
  state[kV + 1] = state[kV + 1] * keep + sum;
}

extern "C" __attribute__((visibility("default"))) void tn_attend(const TnVariantArgs* a,
                                                                 float* scratch) {
  float* kt = scratch;
  float* vt = kt + kTile * kK;
  float* q = vt + kTile * kV;
  Range all = {0x7fffffffffffffffLL, -0x7fffffffffffffffLL};
  for (long long row = 0; row < a->rows; ++row) {
    const Range r = Seen(a, row);
    if (r.begin < r.end) {
      all.begin = r.begin < all.begin ? r.begin : all.begin;
      all.end = r.end > all.end ? r.end : all.end;
    }
    for (long long g = 0; g < a->group; ++g) {
      float* state = a->state + row * a->state_row + g * a->state_head;
      for (int c = 0; c < kV + 2; ++c) state[c] = 0;
      state[kV] = kNone;
    }
  }
  for (long long first = all.begin / kTile * kTile; first < all.end; first += kTile) {
    const long long begin = first > all.begin ? first : all.begin;
    const long long end = first + kTile < all.end ? first + kTile : all.end;
    for (int t = 0; t < kTile; ++t) {
      const long long j = first + t;
      if (j < begin || j >= end) {  // no row: nothing is added for it
        for (int d = 0; d < kK; ++d) kt[d * kTile + t] = 0;
        continue;
      }
      const Stored* k = Row(a, a->k, a->k_slot, j);
      for (int d = 0; d < kK; ++d) kt[d * kTile + t] = KeyHook(Widen(k[d]), d, j, a->first_head);
      const Stored* v = Row(a, a->v, a->v_slot, j);
      for (int c = 0; c < kV; ++c) vt[t * kV + c] = Widen(v[c]);
    }
    for (long long row = 0; row < a->rows; ++row) {
      Range r = Seen(a, row);
      r.begin = r.begin > begin ? r.begin : begin;
      r.end = r.end < end ? r.end : end;
      if (r.begin >= r.end) continue;
      for (long long g = 0; g < a->group; ++g) AddTile(a, kt, vt, q, first, r, row, g);
    }
  }
}
)";

constexpr const char* kWidenBf16 = R"(
typedef unsigned short Stored;
static inline float Widen(Stored x) {
  const unsigned bits = (unsigned)x << 16;
  float y;
  __builtin_memcpy(&y, &bits, 4);
  return y;
}
)";
constexpr const char* kWidenF32 = R"(
typedef float Stored;
static inline float Widen(Stored x) { return x; }
)";

// An inline function around a hook's expression, or around what is done without one.
std::string Hook(const char* signature, const std::string& expression, const char* otherwise) {
  return fmt::format("static inline {} {{ return {}; }}\n", signature,
                     expression.empty() ? otherwise : "(" + expression + ")");
}

}  // namespace

std::string KernelVariant::Name() const {
  std::string name =
      fmt::format("{}_{}x{}_page{}", NameOf(kv_dtype), k_width, v_width, page_tokens);
  if (window) name += "_window";
  if (softcap) name += "_softcap";
  if (alibi) name += "_alibi";
  if (custom_mask) name += "_mask";
  if (!hooks.empty()) name += "_hooks";
  return name;
}

std::string KernelVariant::Source() const {
  std::string text = fmt::format("// {}\n{}\n", Name(), kInterface);
  text += fmt::format(
      "enum {{ kK = {}, kV = {}, kPage = {}, kWindow = {:d}, kSoftcap = {:d}, kAlibi = {:d}, "
      "kMask = {:d} }};\n",
      k_width, v_width, page_tokens, window, softcap, alibi, custom_mask);
  text += kv_dtype == DType::kBF16 ? kWidenBf16 : kWidenF32;
  text += kVectors;
  text += Hook("float QueryHook(float x, int dim, long long query, long long head)", hooks.query,
               "((void)dim, (void)query, (void)head, x)");
  text += Hook("float KeyHook(float x, int dim, long long key, long long head)", hooks.key,
               "((void)dim, (void)key, (void)head, x)");
  text += Hook("float LogitsHook(float score, long long query, long long key, long long head)",
               hooks.logits, "((void)query, (void)key, (void)head, score)");
  text += Hook("bool MaskHook(long long query, long long key, long long head)", hooks.mask,
               "((void)query, (void)key, (void)head, true)");
  return text + kKernel;
}

std::string WhyNoVariant(const AttentionSpec& spec) {
  if (spec.mla) return "latent attention has no variants";
  if (spec.kind == AttentionKind::kEncoder) return "an encoder's keys lie in no pages";
  if (spec.kv_dtype != DType::kF32 && spec.kv_dtype != DType::kBF16)
    return fmt::format("kv_dtype = {}, variants read {{f32, bf16}}", NameOf(spec.kv_dtype));
  if (spec.relative_bias) return "a relative bias has no variants";
  if (spec.head_dim > 1024 || spec.v_head_dim > 1024)
    return fmt::format("head_dim = {}, variants have up to 1024",
                       std::max(spec.head_dim, spec.v_head_dim));
  return "";
}

KernelVariant VariantOf(const AttentionSpec& spec, const VariantHooks& hooks) {
  return {.kv_dtype = spec.kv_dtype,
          .k_width = spec.head_dim,
          .v_width = spec.v_head_dim,
          .page_tokens = spec.page_tokens,
          .window = spec.window.has_value(),
          .softcap = spec.softcap > 0,
          .alibi = spec.alibi_slopes != nullptr,
          .custom_mask = spec.custom_mask,
          .hooks = hooks};
}

}  // namespace tenon::backends
