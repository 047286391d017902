// BERT with its masked-language-model head (Hugging Face modeling_bert.py): an encoder with
// post-norms, learned positions and token types. Older checkpoints call norm weights gamma and
// beta.
#include <cmath>

#include "tenon/modules/attention.h"
#include "tenon/modules/embedding.h"
#include "tenon/registry/registry.h"

namespace tenon {
namespace {

struct BertConfig : ModelConfig {
  int64_t token_types = 2;

  BertConfig(ConfigReader& reader, Container /*container*/) {
    ReadIdentity(reader, *this);
    ReadSizes(reader, *this, {.tied = true});
    ReadAttentionGeometry(reader, *this);
    ReadMaxPosition(reader, *this, {"max_position_embeddings", 512});
    ReadMlp(reader, *this, {.default_activation = Activation::kGelu});
    ReadNormEps(reader, *this, "layer_norm_eps", 1e-12);
    ReadTokens(reader, *this);
    token_types = reader.Int("type_vocab_size", 2).value;
    const std::string positions = reader.String("position_embedding_type", "absolute").value;
    if (positions != "absolute")
      reader.Error("position_embedding_type", "is '" + positions + "', allowed: absolute");
    reader.Ignore({"is_decoder", "add_cross_attention"});
  }

  NormOptions norm() const {
    return {.kind = NormKind::kLayer,
            .width = hidden.value,
            .eps = static_cast<float>(norm_eps.value),
            .has_bias = true};
  }
  AttentionSpec Attention(int layer) const {
    return {.layer = layer,
            .kind = AttentionKind::kEncoder,
            .heads = heads.value[layer],
            .kv_heads = heads.value[layer],
            .head_dim = head_dim.value[layer],
            .v_head_dim = head_dim.value[layer],
            .scale = 1.0f / std::sqrt(static_cast<float>(head_dim.value[layer]))};
  }
};

class Embeddings {
 public:
  Embeddings(const Scope& scope, const BertConfig& c)
      : words_(scope / "word_embeddings", c.vocab.value, c.hidden.value),
        positions_(scope / "position_embeddings", c.max_position.value, c.hidden.value),
        types_(scope / "token_type_embeddings", c.token_types, c.hidden.value),
        norm_(scope / "LayerNorm", c.norm()) {}

  Value operator()(Forward& pass) const {
    const StepLayout& layout = pass.layout();
    Residual sum(words_(pass, layout.token_ids));
    sum.Add(positions_(pass, layout.positions));
    sum.Add(types_(pass, layout.zeros));  // one segment: type 0
    return norm_(pass, sum);
  }
  Embedding& words() { return words_; }

 private:
  Embedding words_;
  Embedding positions_;
  Embedding types_;
  NormModule norm_;
};

// Post-norm: the norm's output is the stream from there on.
class Block {
 public:
  Block(const Scope& scope, const BertConfig& c, int layer)
      : core_(scope / "attention" / "self", c.Attention(layer)),
        qkv_(scope / "attention" / "self", "qkv", c.hidden.value,
             {{"query", c.hidden.value, true},
              {"key", c.hidden.value, true},
              {"value", c.hidden.value, true}}),
        attention_out_(scope / "attention" / "output" / "dense", c.hidden.value, c.hidden.value,
                       true),
        attention_norm_(scope / "attention" / "output" / "LayerNorm", c.norm()),
        activation_(c.activation.value),
        up_(scope / "intermediate" / "dense", c.hidden.value, c.intermediate.value[layer], true),
        down_(scope / "output" / "dense", c.intermediate.value[layer], c.hidden.value, true),
        output_norm_(scope / "output" / "LayerNorm", c.norm()) {}

  Value operator()(Forward& pass, const Value& x) const {
    const AttentionSpec& spec = core_.spec();
    const Value qkv = qkv_(pass, x);
    const auto part = [&](size_t i) {
      return qkv_.SegmentOf(qkv, i).SplitLast(spec.heads, spec.head_dim);
    };
    Residual attended(x);
    attended.Add(attention_out_(pass, core_.Run(pass, {part(0), part(1), part(2)})));
    const Value normed = attention_norm_(pass, attended);
    Residual fed(normed);
    fed.Add(down_(pass, Activate(pass.tape(), activation_, up_(pass, normed))));
    return output_norm_(pass, fed);
  }

 private:
  AttentionCore core_;
  Linear qkv_;
  Linear attention_out_;
  NormModule attention_norm_;
  Activation activation_;
  Linear up_;
  Linear down_;
  NormModule output_norm_;
};

// dense, activation, norm, then the word embedding as decoder with a bias of its own.
class MaskedLmHead : public Module {
 public:
  MaskedLmHead(const Scope& scope, const BertConfig& c, Embedding& words)
      : Module(scope),
        activation_(c.activation.value),
        transform_(scope / "transform" / "dense", c.hidden.value, c.hidden.value, true),
        norm_(scope / "transform" / "LayerNorm", c.norm()),
        words_(words) {}

  void CreateWeights(LoadContext& context) override {
    const int64_t vocab = words_.table().rows;
    AddParameter(context, path() + ".bias", {vocab}, Parameter::Form::kFloat32);
    // The rule of every head: a decoder matrix in the file is used as it is.
    const std::string name = path() + ".decoder.weight";
    has_own_ = context.index != nullptr && context.index->Find(name) != nullptr;
    if (has_own_) {
      decoder_ = MetaMatrixOf(
          AddParameter(context, name, {vocab, words_.table().cols}, Parameter::Form::kProduct));
    } else {
      decoder_ = words_.UseInProducts(context);
    }
  }
  void LinkWeights() override {
    decoder_ = has_own_ ? MatrixOf(parameters_[1]) : words_.product();
    decoder_.bias = parameters_[0].floats();
  }

  Value operator()(Forward& pass, const Value& x) const {
    const Value inner = Activate(pass.tape(), activation_, transform_(pass, x));
    return Matmul(pass.tape(), {&decoder_, 1}, norm_(pass, inner));
  }

 private:
  Activation activation_;
  Linear transform_;
  NormModule norm_;
  Embedding& words_;
  bool has_own_ = false;
  MatrixRef decoder_;
};

class BertForMaskedLM final : public Model {
 public:
  using Config = BertConfig;

  BertForMaskedLM(const Scope& scope, const BertConfig& c)
      : Model(scope),
        embeddings_(scope / "bert" / "embeddings", c),
        blocks_(scope / "bert" / "encoder" / "layer", c.layers.value, c),
        head_(scope / "cls" / "predictions", c, embeddings_.words()) {}

  Value Forward(tenon::Forward& pass) const override {
    Value x = embeddings_(pass);
    pass.Tap("embed", x);
    int layer = 0;
    for (const Block& block : blocks_) {
      x = block(pass, x);
      pass.Tap("hidden." + std::to_string(layer++), x);
    }
    return head_(pass, LogitRows(pass, x));
  }

  static NameTable Names(const BertConfig& /*config*/, Container /*container*/) {
    NameTable names;
    names.WrapperPrefixes();
    names.Suffix(".gamma", ".weight");
    names.Suffix(".beta", ".bias");
    return names;
  }

 private:
  Embeddings embeddings_;
  ModuleList<Block> blocks_;
  MaskedLmHead head_;
};

}  // namespace

Status RegisterBert(Registrar& registrar) {
  registrar.Model<BertForMaskedLM>(
      "BertForMaskedLM", ModelKind::kEncoder,
      {.model_type = "bert",
       .skippable = {"bert.embeddings.position_ids", "bert.pooler.*", "cls.seq_relationship.*",
                     "cls.predictions.decoder.bias"}});
  return {};
}

}  // namespace tenon
