// NameTable: one family's names in one container, both ways: canonical name <-> stored name and the
// transform between the tensors. Names that no row knows are the same on both sides, so a Hugging
// Face checkpoint in canonical form needs no rows. Rows are found by hash, never scanned. A value;
// thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tenon/checkpoint/transform.h"

namespace tenon {

class NameTable {
 public:
  // Patterns are names whose parts between dots may be `{}`, which stands for a number:
  //   Add("model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight",
  //       {TransformStep::PermuteQk(heads)});
  //   Add("model.layers.{}.mlp.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight",
  //       {TransformStep::Slice(0, 1)});
  // Numbers pair up in order; the canonical side has one more when there is a slice (at most one a
  // row, its first step). Several rows with one stored pattern cut a fused tensor. Of rows that
  // match a name those with the most literal numbers win, so a row for layer 3 alone overrides the
  // row for all layers. A malformed row is a bug of the family's table.
  NameTable& Add(std::string canonical, std::string stored, Transform transform = {});

  // Spellings that older or wrapped files use and that are never written: they are replaced before
  // rows are looked up, each rule at most once per name, in the order added.
  // Prefix("model.language_model.", "model.") renames, Prefix("module.", "") strips,
  // Prefix("", "model.", {"model.", "lm_head."}) adds unless the name starts like one of the list.
  NameTable& Prefix(std::string stored, std::string canonical,
                    std::vector<std::string> unless = {});
  NameTable& Suffix(std::string stored, std::string canonical);  // ".gamma" -> ".weight"
  // Strips what wrappers of training code leave: "_orig_mod.", "module.".
  NameTable& WrapperPrefixes();

  struct Row {
    std::string canonical;  // pattern
    std::string stored;     // pattern
    Transform transform;
    int slice_placeholder = -1;  // number of the canonical pattern that is the slice's index
  };
  struct Match {
    const Row* row = nullptr;
    std::vector<int64_t> numbers;  // of the stored name's `{}`
  };
  struct StoredName {
    const Row* row = nullptr;
    std::string name;
    int64_t slice = 0;
  };

  // A stored name as rows spell it: prefix and suffix rules applied. For quantisation keys too.
  std::string Normalise(std::string_view stored) const;
  // All rows for a normalised stored name; none: its canonical name is itself.
  std::vector<Match> MatchStored(std::string_view normalised) const;
  // The canonical name of a match; slice: the index, ignored without a slice step.
  std::string CanonicalName(const Match& match, int64_t slice) const;
  // The way back; nothing: the stored name is the canonical one.
  std::optional<StoredName> StoredOf(std::string_view canonical) const;
  // Canonical module names for a stored module name ("transformer.h.3.attn.c_attn" -> q_proj,
  // k_proj, v_proj): rows of its weight, or the normalised name itself. A slice's index stays `{}`.
  std::vector<std::string> CanonicalModules(std::string_view stored_module) const;

 private:
  // The numbers of a name or pattern, in order: -1 for `{}`.
  using Numbers = std::vector<int64_t>;
  struct Affix {
    std::string stored;
    std::string canonical;
    std::vector<std::string> unless;
  };
  struct CompiledRow {
    Row row;
    Numbers canonical;
    Numbers stored;
  };
  using ByKey = std::unordered_map<std::string, std::vector<int>>;
  std::vector<int> Find(const ByKey& keys, std::string_view name, bool by_stored,
                        Numbers& numbers) const;

  std::vector<CompiledRow> rows_;
  ByKey by_stored_;  // key: the name with every number as `{}`
  ByKey by_canonical_;
  std::vector<Affix> prefixes_;
  std::vector<Affix> suffixes_;
};

}  // namespace tenon
