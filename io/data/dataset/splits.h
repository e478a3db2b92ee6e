// A data set of samples with labels, in two parts: for training and for testing.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "io/data/labels/labels.h"
#include "io/data/samples/samples.h"

namespace io {

struct CsvCoding;  // io/data/readers/csv/csv_coding.h

// One split (training or test). Most callers need what every kind of samples and labels states;
// find() and as() give the kind itself.
// structure: asks whichever kinds there are, so that callers visit no variants
struct Dataset {
  std::string name = {};  // "mnist"
  Samples samples = ImageSamples{};
  Labels labels = ClassLabels{};

  // The samples or labels, if they are of this kind; else null.
  template <class Kind>
  const Kind* find() const {
    return std::get_if<Kind>(&part<Kind>(*this));
  }
  template <class Kind>
  Kind* find() {
    return std::get_if<Kind>(&part<Kind>(*this));
  }
  // REQUIRES: they are of this kind (std::bad_variant_access).
  template <class Kind>
  const Kind& as() const {
    return std::get<Kind>(part<Kind>(*this));
  }
  template <class Kind>
  Kind& as() {
    return std::get<Kind>(part<Kind>(*this));
  }

  std::int64_t size() const;                  // samples
  std::array<std::int64_t, 3> shape() const;  // height, width, channels; 1, 1, columns; context
  void set_shape(const std::array<std::int64_t, 3>& shape);
  std::int64_t sample_count() const;              // elements of one sample
  std::vector<std::int64_t> model_shape() const;  // a sample, as a model reads it
  std::int64_t positions() const;                 // labels of one sample
  std::int64_t classes() const;                   // tokens: the size of the vocabulary; targets: 1
  const SampleTraits& sample_traits() const;
  const LabelTraits& label_traits() const;
  std::string intake() const;  // what a model of these samples takes, for messages
  bool has_bytes() const;      // batches can be images as they are stored
  std::uint64_t bytes() const;
  Dataset like() const;                                // the same, without samples
  void keep(const std::vector<std::int64_t>& chosen);  // these samples, which ascend
  // Keeps `count` samples that the labels choose, in the order of the set: of each class its share,
  // or the first windows of tokens. REQUIRES: 0 < count <= size().
  void limit(std::int64_t count, std::uint64_t seed);

  // These state the labels; they are empty or null if the labels are of another kind.
  const std::vector<std::string>& class_names() const;
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

struct DatasetSplits {
  Dataset train, test;
  std::string columns = {};                      // csv: a line that says what each column became
  std::shared_ptr<const CsvCoding> coding = {};  // csv: how other tables are read like this one
  std::vector<std::string> warnings = {};        // lines for the user
  // Lines about classes, categories and characters that the coding lacks (SampleCoding).
  std::vector<std::string> unknown = {};
};

}  // namespace io
