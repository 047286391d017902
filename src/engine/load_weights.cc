#include "tenon/engine/load_weights.h"

#include <vector>

#include "tenon/base/file.h"
#include "tenon/ops/pack_weights.h"

namespace tenon {
namespace {

class Packer {
 public:
  Packer(const KernelTable& kernels, ThreadTeam& team, std::byte* memory)
      : kernels_(kernels), team_(team), memory_(memory) {}

  // Takes a loaded parameter; packs what has come together when that is enough.
  void Add(Parameter& parameter) {
    if (parameter.file() != nullptr) parameter.file()->ReadAhead(StoredBytes(parameter));
    coming_.push_back(&parameter);
    coming_bytes_ += parameter.stored_bytes();
    if (coming_bytes_ >= kPackBatchBytes) Turn();
  }
  void Finish() {
    Turn();
    Turn();
  }

 private:
  static std::span<const std::byte> StoredBytes(const Parameter& parameter) {
    return {parameter.view().data(), static_cast<size_t>(parameter.stored_bytes())};
  }

  // Packs the batch before, which has been read meanwhile.
  void Turn() {
    std::vector<Packing> packings;
    for (const Parameter* parameter : ready_) {
      packings.push_back({RowsOf(*parameter), memory_});
      memory_ += parameter->held_bytes();
    }
    PackWeights(kernels_, team_, packings);
    for (size_t i = 0; i < ready_.size(); ++i) {
      const MappedFile* file = ready_[i]->file();
      if (file != nullptr) file->GiveBack(StoredBytes(*ready_[i]));
      ready_[i]->SetPacked(packings[i].packed);
    }
    ready_ = std::exchange(coming_, {});
    coming_bytes_ = 0;
  }

  const KernelTable& kernels_;
  ThreadTeam& team_;
  std::byte* memory_;
  std::vector<Parameter*> ready_, coming_;
  int64_t coming_bytes_ = 0;
};

}  // namespace

Result<Buffer> LoadWeights(PlannedModel& plan, ThreadTeam& team) {
  const int64_t packed_bytes = PackedTotalOf(*plan.context).bytes;
  Buffer memory;
  if (packed_bytes > 0) {
    TN_ASSIGN_OR_RETURN(memory, Buffer::AllocateForStreams(packed_bytes, "packed weights"));
  }
  Packer packer(*plan.kernels, team, memory.data());
  for (Module* module : plan.context->modules) {
    for (Parameter& parameter : module->parameters()) {
      TN_RETURN_IF_ERROR(parameter.Load(*plan.checkpoint));
      if (parameter.held_form() == HeldForm::kPacked) packer.Add(parameter);
    }
    TN_RETURN_IF_ERROR(module->DecodeWeights(), module->path());
    for (Parameter& parameter : module->parameters()) {
      if (parameter.form() == Parameter::Form::kCodes) parameter.Release();
    }
  }
  packer.Finish();
  for (Module* module : plan.context->modules) module->LinkWeights();
  for (Module* module : plan.context->modules) {
    TN_RETURN_IF_ERROR(module->Derive(), module->path());
  }
  return memory;
}

}  // namespace tenon
