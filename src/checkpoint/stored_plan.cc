#include "tenon/checkpoint/stored_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "tenon/checkpoint/file_kind.h"
#include "tenon/checkpoint/stored_types.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

// All canonical tensors that go into one stored one.
struct Group {
  StoredPlan plan;
  std::vector<const CanonicalTensor*> tensors;  // as plan.pieces
};

std::vector<Group> GroupByStored(std::span<const CanonicalTensor> tensors, const NameTable& table) {
  std::vector<Group> groups;
  std::unordered_map<std::string, size_t> group_of;
  for (const CanonicalTensor& tensor : tensors) {
    const std::optional<NameTable::StoredName> stored = table.StoredOf(tensor.name);
    StoredPlan::Piece piece;
    piece.canonical = tensor.name;
    if (stored.has_value()) {
      piece.transform = stored->row->transform;
      piece.slice = stored->slice;
    }
    const std::string& name = stored.has_value() ? stored->name : tensor.name;
    const auto [position, is_new] = group_of.emplace(name, groups.size());
    if (is_new) groups.emplace_back();
    Group& group = groups[position->second];
    if (is_new) {
      group.plan.name = name;
      group.plan.dtype = tensor.dtype;
    }
    group.plan.pieces.push_back(std::move(piece));
    group.tensors.push_back(&tensor);
  }
  return groups;
}

int64_t SliceCount(const StoredPlan& plan) {
  int64_t last = 0;
  for (const StoredPlan::Piece& piece : plan.pieces) last = std::max(last, piece.slice);
  return last + 1;
}

// Every row for the stored name, every slice: exactly one piece each.
Status CheckComplete(const StoredPlan& plan, const NameTable& table) {
  std::unordered_set<std::string_view> present;
  for (const StoredPlan::Piece& piece : plan.pieces) {
    if (!present.insert(piece.canonical).second) {
      return Refused(fmt::format("{} is given twice", QuotedName(piece.canonical)));
    }
  }
  const int64_t slices = SliceCount(plan);
  size_t expected = 0;
  for (const NameTable::Match& match : table.MatchStored(plan.name)) {
    const int64_t count = match.row->slice_placeholder >= 0 ? slices : 1;
    for (int64_t i = 0; i < count; ++i, ++expected) {
      const std::string name = table.CanonicalName(match, i);
      if (present.contains(name)) continue;
      return Refused(fmt::format("needs {}, which is not given", QuotedName(name)));
    }
  }
  if (std::max<size_t>(expected, 1) == present.size()) return {};
  return Refused(fmt::format("{} tensors are given for it, its rows make {}", present.size(),
                             std::max<size_t>(expected, 1)));
}

Status FindShape(Group& group) {
  const int64_t slices = SliceCount(group.plan);
  for (size_t i = 0; i < group.tensors.size(); ++i) {
    const CanonicalTensor& tensor = *group.tensors[i];
    TN_ASSIGN_OR_RETURN(const Shape shape,
                        StoredShapeOf(tensor.shape, group.plan.pieces[i].transform, slices),
                        QuotedName(tensor.name));
    if (i == 0) group.plan.shape = shape;
    if (shape == group.plan.shape && tensor.dtype == group.plan.dtype) continue;
    return Refused(fmt::format("{} makes it {} {}, {} makes it {} {}",
                               QuotedName(group.tensors[0]->name), NameOf(group.plan.dtype),
                               group.plan.shape.Text(), QuotedName(tensor.name),
                               NameOf(tensor.dtype), shape.Text()));
  }
  const ElementLayout layout = ElementLayout::Of(group.plan.dtype);
  if (CheckedBytes(layout.block_elements, layout.block_bytes, group.plan.shape.dims())) return {};
  return Refused(fmt::format("{} {} is not whole blocks or too large", NameOf(group.plan.dtype),
                             group.plan.shape.Text()));
}

}  // namespace

Result<std::vector<StoredPlan>> PlanStored(std::span<const CanonicalTensor> tensors,
                                           const NameTable& table) {
  std::vector<StoredPlan> plans;
  for (Group& group : GroupByStored(tensors, table)) {
    const std::string context = fmt::format("stored tensor {}", QuotedName(group.plan.name));
    TN_RETURN_IF_ERROR(CheckComplete(group.plan, table), context);
    TN_RETURN_IF_ERROR(FindShape(group), context);
    plans.push_back(std::move(group.plan));
  }
  return plans;
}

Result<LoadedTensor> AssembleStored(const StoredPlan& plan, const FetchTensor& fetch) {
  if (plan.pieces.size() == 1 && plan.pieces[0].transform.empty()) {
    return fetch(plan.pieces[0].canonical);
  }
  const int64_t bytes = plan.shape.rows() * RowBytes(plan.dtype, plan.shape.dim(-1));
  TN_ASSIGN_OR_RETURN(Buffer buffer, Buffer::AllocateZeroed(bytes, plan.name.c_str()));
  for (const StoredPlan::Piece& piece : plan.pieces) {
    TN_ASSIGN_OR_RETURN(
        const Gather gather,
        Gather::Bind(ElementLayout::Of(plan.dtype), plan.shape, piece.transform, piece.slice),
        QuotedName(piece.canonical));
    TN_ASSIGN_OR_RETURN(const LoadedTensor tensor, fetch(piece.canonical));
    if (tensor.view.dtype() != plan.dtype || !(tensor.view.shape() == gather.shape())) {
      return InternalError(fmt::format("{}: {} was planned as {} {}", piece.canonical,
                                       tensor.view.Text(), NameOf(plan.dtype),
                                       gather.shape().Text()));
    }
    gather.Write(tensor.view.data(), buffer.data());
  }
  LoadedTensor assembled;
  assembled.view = TensorView(plan.dtype, plan.shape, buffer.data());
  assembled.owner = std::make_shared<const Buffer>(std::move(buffer));
  return assembled;
}

}  // namespace tenon
