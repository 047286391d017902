#include "tenon/tokenizer/merge_table.h"

namespace tenon {

MergeTable::MergeTable(std::span<const Merge> merges) {
  // Half again as many slots: most look-ups are misses and should see one free slot at once.
  slots_.assign(merges.size() + merges.size() / 2 + 2, Slot());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    size_t index = SlotOf(merge.left, merge.right);
    while (slots_[index].rank != kNone &&
           (slots_[index].left != merge.left || slots_[index].right != merge.right)) {
      if (++index == slots_.size()) index = 0;
    }
    slots_[index] = {merge.left, merge.right, merge.merged, static_cast<uint32_t>(rank)};
  }
}

}  // namespace tenon
