// A data set: samples with labels.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "io/data/labels/labels.h"
#include "io/data/samples/samples.h"

namespace io {

// One split (training or test). Most callers need what every kind of samples and labels states;
// find() and as() give the kind itself.
// structure: asks whichever kinds there are, so that callers visit no variants
struct Dataset {
  std::string name = {};  // "mnist"
  Samples samples = ImageSamples{};
  Labels labels = ClassLabels{};

  // Returns the samples or labels if they are of this kind; otherwise null.
  template <class Kind>
  const Kind* find() const {
    return std::get_if<Kind>(&part<Kind>(*this));
  }
  template <class Kind>
  Kind* find() {
    return std::get_if<Kind>(&part<Kind>(*this));
  }
  // REQUIRES: they are of this kind (otherwise std::bad_variant_access).
  template <class Kind>
  const Kind& as() const {
    return std::get<Kind>(part<Kind>(*this));
  }
  template <class Kind>
  Kind& as() {
    return std::get<Kind>(part<Kind>(*this));
  }

  std::int64_t size() const;                  // number of samples
  std::array<std::int64_t, 3> shape() const;  // height, width, channels; 1, 1, columns; context
  void set_shape(const std::array<std::int64_t, 3>& shape);
  std::int64_t sample_count() const;              // elements per sample
  std::vector<std::int64_t> model_shape() const;  // shape of a sample as a model reads it
  std::int64_t positions() const;                 // labels per sample
  std::int64_t classes() const;                   // tokens: the size of the vocabulary; targets: 1
  const SampleTraits& sample_traits() const;
  const LabelTraits& label_traits() const;
  std::string intake() const;  // describes the samples that a model for this set accepts, for
                               // messages
  bool has_bytes() const;      // batches can contain images as they are stored
  std::uint64_t bytes() const;
  Dataset like() const;                                // the same without samples
  void keep(const std::vector<std::int64_t>& chosen);  // keeps these samples, given in ascending
                                                       // order
  // Keeps `count` samples that the labels choose, in the order of the set: stratified by class, or
  // the first windows of tokens. REQUIRES: 0 < count <= size().
  void limit(std::int64_t count, std::uint64_t seed);

  // Returns the weight of each sample's loss in means; empty: 1 each.
  std::vector<double> loss_weights() const;

  // Properties of the labels; empty or null if the labels are of another kind.
  std::vector<std::int64_t> label_shape() const;        // of a sample with a class per position
  const std::vector<std::string>& class_names() const;  // or of the labels of a sample with several
  const std::vector<std::string>& unknown_classes() const;
  const std::string& vocabulary() const;
  const TargetScale* target() const;

 private:
  template <class Kind, class Set>
  static auto& part(Set& set) {
    if constexpr (requires { Kind::kTraits.noun; })
      return set.samples;
    else
      return set.labels;
  }
};

}  // namespace io
