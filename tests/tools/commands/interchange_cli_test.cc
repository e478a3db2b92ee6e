// verify, export and import as a user or a script meets them: exit codes, stdout alone for names,
// files that are not what they say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "io/interchange/array_files.h"
#include "tests/io/interchange/array_fixture.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/tools/commands/program.h"

namespace {

using array_fixture::array_of;
using array_fixture::Arrays;
using program::expect_error;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;

Arrays model() {
  return {array_of<float>("conv.weight", {1, 2, 3, 4}),
          array_of<float>("bn.weight", {1}),
          array_of<float>("bn.running_mean", {0.5f}, io::Section::kBuffer),
          array_of<float>("bn.running_var", {0.25f}, io::Section::kBuffer),
          array_of<std::int64_t>("bn.num_batches_tracked", {3}, io::Section::kBuffer),
          array_of<float>("momentum/conv.weight", {9, 9, 9, 9}, io::Section::kOptimizer)};
}

class VerifyFiles : public testing::Test {
 protected:
  std::string save(const std::string& name, Arrays arrays) {
    const std::string path = folder_ / name;
    if (name.ends_with(".ckpt")) {
      io::Checkpoint c;
      c.model = "x";
      c.arrays = std::move(arrays);
      io::save_checkpoint(c, path);
    } else {
      std::erase_if(arrays,
                    [](const io::NamedArray& a) { return a.section == io::Section::kOptimizer; });
      io::save_arrays(arrays, path);
    }
    return path;
  }
  // The model with array `index` changed by `change`.
  template <class Change>
  std::string save_changed(const std::string& name, std::size_t index, Change change) {
    Arrays arrays = model();
    change(arrays[index]);
    return save(name, arrays);
  }
  static void bump(io::NamedArray& array) { array.data.back() ^= std::byte{1}; }
  static CommandResult verify(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "verify");
    return engine(arguments);
  }
  static void expect(const CommandResult& result, int code, const std::string& out) {
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_EQ(result.out, out);
  }
  static void expect_trouble(const CommandResult& result, const std::string& words) {
    expect(result, 2, "");
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_VALUES(result.err, words);
  }

  test_support::TemporaryDirectory folder_;
};

TEST_F(VerifyFiles, TheSameInEveryFormatIsTheSame) {
  const std::string a = save("a.ckpt", model()), b = save("b.safetensors", model()),
                    c = save("c.npz", model()), d = save("d.pth", model());
  for (const auto& [one, other] :
       {std::pair(a, b), std::pair(b, a), std::pair(a, c), std::pair(c, a), std::pair(b, c),
        std::pair(c, b), std::pair(a, d), std::pair(d, c), std::pair(d, b)})
    expect(verify({one, other}), 0, "");
  const CommandResult all = verify({a, b, c, d, a});
  expect(all, 0, "");
  EXPECT_EQ(all.err, "verify: 0 of 5 tensors differ\n");
}

TEST_F(VerifyFiles, NamesAloneOnStdoutAndTheReasonOnStderr) {
  const std::string a = save("a.ckpt", model()), b = save_changed("b.ckpt", 0, bump),
                    bn = save_changed("bn.npz", 3, bump);
  const CommandResult weights = verify({a, b});
  expect(weights, 1, "conv.weight\n");
  EXPECT_EQ(weights.err,
            "verify: 1 of 5 tensors differ (1 parameters, 0 BatchNorm running statistics)\n");
  const CommandResult running = verify({a, bn});
  expect(running, 1, "bn.running_var\n");
  EXPECT_VALUES(running.err, "1 5 tensors (0 parameters, 1 BatchNorm BN: --sync-bn");
  expect(verify({a, b, bn}), 1, "conv.weight\nbn.running_var\n");
  expect(verify({"--summary", a, b}), 1, "");
  const CommandResult quiet = verify({"-q", a, b});
  expect(quiet, 1, "");
  EXPECT_EQ(quiet.err, "");
  expect(verify({"--max", "1", a, b, bn}), 1, "conv.weight\n");
}

// A file can hold any name; on a terminal it must neither act nor pass for a line of the program.
TEST_F(VerifyFiles, NamesInFilesAreMadeVisible) {
  const Arrays arrays{array_of<float>("w\x1b[2J\nverify: 0 of 1 tensors differ \u202e", {1})};
  const std::string a = save("a.safetensors", arrays), b = save("b.safetensors", {});
  expect(verify({a, b}), 1, "w\\x1b[2J\\nverify: 0 of 1 tensors differ \\u202e\n");
  const CommandResult json = verify({a, b, "--format", "json"});
  EXPECT_CONTAINS(json.out, "w\\u001b[2J\\u000averify");
  const CommandResult error = call("import", a, "-o", folder_ / "c.ckpt", "--model mlp");
  EXPECT_CONTAINS(error.err, "\\x1b[2J\\n");
  EXPECT_EQ(std::count(error.err.begin(), error.err.end(), '\n'), 1) << error.err;
}

TEST_F(VerifyFiles, MissingExtraShapeAndDtype) {
  Arrays fewer = model();
  fewer.erase(fewer.begin() + 1);
  Arrays doubles = model();
  doubles[1] = array_of<double>("bn.weight", {1});
  const std::string a = save("a.ckpt", model()), less = save("less.npz", fewer),
                    wide = save("wide.safetensors", doubles);
  const std::string square = save_changed("square.npz", 0, [](io::NamedArray& x) {
    x.shape = {2, 2};
  });
  const CommandResult missing = verify({a, less});
  expect(missing, 1, "bn.weight\n");
  EXPECT_VALUES(missing.err, "1 not in every file");
  expect(verify({less, a}), 1, "bn.weight\n");
  expect(verify({"--atol", "1000", a, wide}), 1, "bn.weight\n");
  const CommandResult shape = verify({"--atol", "1000", a, square});
  expect(shape, 1, "conv.weight\n");
  EXPECT_VALUES(shape.err, "1 shape dtype");
}

TEST_F(VerifyFiles, SectionsAreChosenWithOnly) {
  Arrays arrays = model();
  for (const std::size_t i : {std::size_t{0}, std::size_t{3}, std::size_t{5}}) bump(arrays[i]);
  const std::string a = save("a.ckpt", model()), b = save("b.ckpt", arrays);
  expect(verify({a, b}), 1, "conv.weight\nbn.running_var\n");
  expect(verify({"--only", "params", a, b}), 1, "conv.weight\n");
  expect(verify({"--only", "buffers", a, b}), 1, "bn.running_var\n");
  expect(verify({"--only", "optimizer", a, b}), 1, "momentum/conv.weight\n");
  expect(verify({"--only", "all", a, b}), 1, "conv.weight\nbn.running_var\nmomentum/conv.weight\n");
  expect(verify({"--ignore", "conv*", "--ignore", "*running*", a, b}), 0, "");
  EXPECT_EQ(verify({"--only", "some", a, b}).exit_code, 2);
}

TEST_F(VerifyFiles, NaNAndSignedZeroAreBits) {
  const auto with = [&](const std::string& name, float value) {
    return save_changed(name, 1, [&](io::NamedArray& x) { std::memcpy(x.data.data(), &value, 4); });
  };
  const std::string nan = with("nan.ckpt", std::nanf("1")), same = with("same.npz", std::nanf("1")),
                    other = with("other.npz", std::nanf("2")), plus = with("plus.npz", 0.0f),
                    minus = with("minus.npz", -0.0f);
  expect(verify({nan, same}), 0, "");
  expect(verify({nan, other}), 1, "bn.weight\n");
  expect(verify({"--atol", "0.1", nan, other}), 0, "");
  expect(verify({plus, minus}), 1, "bn.weight\n");
  expect(verify({"--ulp", "1", plus, minus}), 0, "");
  expect(verify({"--atol", "1e30", plus, nan}), 1, "bn.weight\n");
}

TEST_F(VerifyFiles, Tolerances) {
  const std::string a = save("a.ckpt", model());
  const std::string near = save_changed("near.npz", 0, bump);  // 4 and the next number
  const float five = 5;
  const std::string far = save_changed(
      "far.npz", 0, [&](io::NamedArray& x) { std::memcpy(x.data.data() + 12, &five, 4); });
  expect(verify({"--ulp", "1", a,
                 save_changed("u.npz", 0, [](io::NamedArray& x) { x.data[0] ^= std::byte{1}; })}),
         0, "");
  expect(verify({"--atol", "0.99", a, far}), 1, "conv.weight\n");
  expect(verify({"--atol", "1", a, far}), 0, "");
  expect(verify({"--rtol", "0.2", a, far}), 0, "");
  expect(verify({"--rtol", "0.19", a, far}), 1, "conv.weight\n");
  expect(verify({a, near}), 1, "conv.weight\n");
  EXPECT_EQ(verify({"--atol", "-1", a, far}).exit_code, 2);
  EXPECT_EQ(verify({"--atol", "nan", a, far}).exit_code, 2);
  EXPECT_EQ(verify({"--atol", "much", a, far}).exit_code, 2);
}

TEST_F(VerifyFiles, NamesAreStrippedAndMapped) {
  Arrays wrapped = model(), renamed = model();
  for (io::NamedArray& array : wrapped) array.name = "module." + array.name;
  renamed[0].name = "stem.weight";
  const std::string a = save("a.ckpt", model()), w = save("w.npz", wrapped),
                    r = save("r.safetensors", renamed);
  EXPECT_EQ(verify({a, w}).exit_code, 1);
  expect(verify({"--strip-prefix", "module.", a, w}), 0, "");
  expect(verify({a, w, "--strip-prefix", "module."}), 0, "");
  expect(verify({"--map", "module.=", a, w}), 0, "");
  expect(verify({"--map", "stem=conv", a, r}), 0, "");
  expect(verify({"--strip-prefix", "module.", "--map", "stem=conv", a, r, w}), 0, "");
  expect(verify({a, r}), 1, "conv.weight\nstem.weight\n");
  expect_trouble(verify({"--map", "stem.weight=bn.weight", a, r}), "both become 'bn.weight'");
  EXPECT_EQ(verify({"--map", "stem", a, r}).exit_code, 2);
}

TEST_F(VerifyFiles, ThreeFilesAndTheMinority) {
  const std::string a = save("a.ckpt", model()), b = save("b.ckpt", model()),
                    c = save_changed("c.ckpt", 0, bump);
  const CommandResult table = verify({"--format", "table", a, c, b});
  EXPECT_EQ(table.exit_code, 1);
  EXPECT_EQ(std::count(table.out.begin(), table.out.end(), '\n'), 2) << table.out;
  for (const std::string& part :
       {std::string("conv.weight"), std::string("f32"), std::string("[4]"),
        std::string("parameter"), std::string("values"), std::string("3"), c})
    EXPECT_CONTAINS(table.out, part) << part << " in ";
  EXPECT_LACKS(table.out, b);
  const CommandResult json = verify({"--format", "json", a, c, b});
  program::expect_words(json.out,
                        {"\"name\":\"conv.weight\",\"dtype\":\"f32\",\"shape\":[4],\"kind\":"
                         "\"parameter\",\"reason\":\"values\"",
                         "\"first_index\":3,\"minority\":[\"" + c + "\"]"});
  EXPECT_EQ(verify({"--format", "json", a, b})
                .out.find("{\"schema\":1,\"compared\":5,\"differences\":[],\"differ\":0"),
            0u);
}

TEST_F(VerifyFiles, QuotedGlobsAreExpanded) {
  save("rank_0.ckpt", model());
  save("rank_1.ckpt", model());
  save_changed("rank_2.ckpt", 0, bump);
  expect(verify({folder_ / "rank_[01].ckpt"}), 0, "");
  expect(verify({folder_ / "rank_*.ckpt"}), 1, "conv.weight\n");
  expect_trouble(verify({folder_ / "none_*.ckpt"}), "no file matches");
  expect_trouble(verify({folder_ / "rank_2*"}), "two files 1");
  expect(verify({save("odd[1].npz", model()), folder_ / "rank_0.ckpt"}), 0,
         "");  // a name that only looks like a pattern
}

TEST_F(VerifyFiles, TroubleIsTwo) {
  const std::string good = save("good.ckpt", model()), npz = save("good.npz", model()),
                    st = save("good.safetensors", model());
  const auto damaged = [&](const std::string& source, std::int64_t place, const std::string& name) {
    std::string bytes = test_support::read_text(source);
    bytes[static_cast<std::size_t>(
        place >= 0 ? place : static_cast<std::int64_t>(bytes.size()) + place)] ^= 1;
    test_support::write_text(folder_ / name, bytes);
    return folder_ / name;
  };
  const auto cut = [&](const std::string& source, std::size_t bytes) {
    test_support::write_text(folder_ / "cut", test_support::read_text(source).substr(0, bytes));
    return folder_ / "cut";
  };
  expect_trouble(verify({good, folder_ / "none.ckpt"}), "cannot open");
  expect_trouble(verify({good, folder_.path().string()}), "no checkpoint in");
  expect_trouble(verify({good, test_support::engine_binary()}), "neither a checkpoint");
  expect_trouble(verify({good, array_fixture::data_file("torch_legacy.pth")}),
                 "torch.save PyTorch >= 1.6");
  expect_trouble(verify({good, array_fixture::data_file("torch_module.pth")}),
                 "refuses to load torch.nn.modules.batchnorm.BatchNorm2d: only tensors are read");
  expect_trouble(verify({good, array_fixture::data_file("numpy_objects.npz")}),
                 "pickles are never read");
  expect_trouble(verify({good, damaged(good, 40, "a")}), "the header is damaged");
  expect_trouble(verify({damaged(good, -30, "b"), good}),
                 "is damaged");  // the optimizer's, which is not compared
  expect_trouble(verify({good, damaged(good, -20, "c")}), "digest");  // the digest itself
  expect_trouble(verify({good, damaged(npz, 175, "d")}), "CRC-32");   // the first array's data
  expect_trouble(verify({good, damaged(st, 3, "e")}),
                 "not a safetensors file");  // the header's length
  for (const std::string& file : {good, npz, st}) {
    EXPECT_EQ(verify({good, cut(file, 5)}).exit_code, 2);
    EXPECT_EQ(verify({good, cut(file, test_support::read_text(file).size() - 1)}).exit_code, 2);
  }
  test_support::write_text(folder_ / "empty", "");
  expect_trouble(verify({good, folder_ / "empty"}), "the file is empty");
  EXPECT_EQ(verify({good}).exit_code, 2);
  EXPECT_EQ(verify({}).exit_code, 2);
  EXPECT_EQ(verify({"--frmat", "json", good, good}).exit_code, 2);
}

TEST_F(VerifyFiles, LargeFilesTakeLittleMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve more address space than the limit of this test";
#endif
  constexpr std::int64_t kCount = std::int64_t{36} << 20;  // 144 MiB of zeros
  const std::string header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[" + std::to_string(kCount) +
                             "],\"data_offsets\":[0," + std::to_string(kCount * 4) + "]}}";
  for (const char* name : {"a.safetensors", "b.safetensors"}) {
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    test_support::write_text(folder_ / name, bytes + header);
    std::filesystem::resize_file(folder_ / name, 8 + header.size() + kCount * 4);  // sparse
  }
  {
    io::Checkpoint c;
    c.arrays = io::load_arrays(folder_ / "a.safetensors");
    io::save_checkpoint(c, folder_ / "c.ckpt");
    io::save_arrays(c.arrays, folder_ / "d.npz");
  }
  const auto limited = [&](const std::string& one, const std::string& other) {
    return test_support::run_command(
        {"/bin/sh", "-c", "ulimit -v 131072; exec \"$0\" verify \"$1\" \"$2\"",
         test_support::engine_binary(), folder_ / one, folder_ / other});
  };
  expect(limited("a.safetensors", "b.safetensors"), 0, "");
  expect(limited("c.ckpt", "a.safetensors"), 0, "");
  expect(limited("d.npz", "c.ckpt"), 0, "");
}

TEST_F(VerifyFiles, ExportAndImportRoundTrip) {
  const auto run = [&](const std::vector<std::string>& arguments) {
    const CommandResult result = expect_success(engine(arguments));
    return result;
  };
  run({"train", "--model", "convnet", "--dataset", "synthetic", "--synthetic-size", "40",
       "--batch-size", "10", "--steps", "3", "--threads", "1", "--save-dir", folder_ / "run"});
  const std::string ckpt = folder_ / "run/step-00000003.ckpt";
  for (const char* name : {"m.npz", "m.safetensors", "m.pth"}) {
    run({"export", ckpt, "-o", folder_ / name});
    run({"import", folder_ / name, "-o", folder_ / "back.ckpt", "--model", "convnet"});
    expect(verify({ckpt, folder_ / name, folder_ / "back.ckpt"}), 0, "");
    const CommandResult started = run({"train", "--model", "convnet", "--dataset", "synthetic",
                                       "--synthetic-size", "40", "--batch-size", "10", "--steps",
                                       "1", "--threads", "1", "--init-from", folder_ / name});
    EXPECT_CONTAINS(started.out, "weights from " + (folder_ / name));
  }
  run({"export", ckpt, "-o", folder_ / "odd.bin", "--format", "pth"});
  EXPECT_EQ(test_support::read_text(folder_ / "odd.bin"),
            test_support::read_text(folder_ / "m.pth"));
  EXPECT_EQ(run({"eval", folder_ / "m.pth", "--model", "convnet", "--dataset", "synthetic",
                 "--synthetic-size", "40", "--format", "json"})
                .out,
            run({"eval", folder_ / "m.npz", "--model", "convnet", "--dataset", "synthetic",
                 "--synthetic-size", "40", "--format", "json"})
                .out);
  // PyTorch Lightning's files have the extension of this program's checkpoints.
  const auto evaluated = [&](const std::string& file) {
    return run({"eval", folder_ / file, "--model", "convnet", "--dataset", "synthetic",
                "--synthetic-size", "40", "--format", "json"})
        .out;
  };
  for (const char* name : {"m.npz", "m.safetensors", "m.pth"}) {
    std::filesystem::copy_file(folder_ / name, folder_ / "named.ckpt",
                               std::filesystem::copy_options::overwrite_existing);
    EXPECT_EQ(evaluated("named.ckpt"), evaluated("m.npz")) << name;
  }
  run({"export", ckpt, "-o", folder_ / "half.npz", "--half"});
  run({"import", folder_ / "half.npz", "-o", folder_ / "half.ckpt", "--model", "convnet"});
  expect(verify({"--atol", "0.001", "--rtol", "0.001", ckpt, folder_ / "half.ckpt"}), 0, "");
  EXPECT_EQ(verify({ckpt, folder_ / "half.ckpt"}).exit_code, 1);
  run({"export", ckpt, "-o", folder_ / "brain.safetensors", "--bf16"});
  EXPECT_EQ(io::load_arrays(folder_ / "brain.safetensors").front().type, base::DType::kBF16);
  // A data set gives the checkpoint what eval needs.
  run({"import", folder_ / "m.npz", "-o", folder_ / "e.ckpt", "--model", "convnet", "--dataset",
       "synthetic", "--synthetic-size", "40"});
  EXPECT_EQ(run({"eval", folder_ / "e.ckpt", "--format", "json"}).out,
            run({"eval", ckpt, "--format", "json"}).out);
  run({"import", folder_ / "m.npz", "-o", folder_ / "double.ckpt", "--model", "convnet", "--dtype",
       "f64"});
  EXPECT_EQ(io::load_arrays(folder_ / "double.ckpt").front().type, base::DType::kF64);
  EXPECT_CONTAINS(io::load_description(folder_ / "double.ckpt").config, "dtype = \"f64\"");
  run({"export", folder_ / "brain.safetensors", "-o", folder_ / "other.npz", "--half"});
  EXPECT_EQ(io::load_arrays(folder_ / "other.npz").front().type, base::DType::kF16);
  // Names as PyTorch's wrappers leave them.
  Arrays wrapped = io::load_arrays(folder_ / "m.npz");
  for (io::NamedArray& array : wrapped) array.name = "net.module._orig_mod." + array.name;
  io::save_arrays(wrapped, folder_ / "w.safetensors");
  const CommandResult stripped = run({"import", folder_ / "w.safetensors", "-o", folder_ / "w.ckpt",
                                      "--model", "convnet", "--strip-prefix", "net."});
  EXPECT_VALUES(stripped.err, "prefixes module. _orig_mod. 16 16 names");
  expect(verify({ckpt, folder_ / "w.ckpt"}), 0, "");
}

TEST_F(VerifyFiles, TwoArraysThatPrefixesMakeOneAreRejected) {
  const auto imported = [&](const std::string& second, const std::string& options) {
    const std::string file = save("two.safetensors", {array_of<float>("a.fc.weight", {1, 2}),
                                                      array_of<float>(second, {3, 4})});
    return call("import", file, "-o", folder_ / "two.ckpt", "--model mlp",
                test_support::split_words(options));
  };
  expect_error(imported("module.a.fc.weight", ""), 65,
               "two.safetensors 'a.fc.weight' 'module.a.fc.weight'");
  expect_error(imported("b.fc.weight", "--strip-prefix a. --strip-prefix b."), 65,
               "two.safetensors 'a.fc.weight' 'b.fc.weight' 'fc.weight'");
}

TEST_F(VerifyFiles, AnImportedModelOfOtherClassesIsExportedToOnnx) {
  const std::string run = folder_ / "run", imported = folder_ / "imported.ckpt";
  expect_success(
      call("train --model resnet20-cifar --dataset synthetic --synthetic-shape 32x32x3 "
           "--synthetic-classes 7 --synthetic-size 14 --batch-size 7 --steps 1 --threads 1 "
           "--save-dir",
           run));
  expect_success(call("export", run, "-o", folder_ / "m.pth"));
  expect_success(call("import", folder_ / "m.pth", "-o", imported));
  const auto classes = [&](const CommandResult& exported) {
    return expect_success(exported).out.substr(exported.out.rfind("->"));
  };
  const std::string own = classes(call("export", run, "-o", folder_ / "a.onnx"));
  EXPECT_CONTAINS(own, ", 7]");
  EXPECT_EQ(classes(call("export", imported, "-o", folder_ / "b.onnx")), own);
  EXPECT_EQ(classes(call("export", folder_ / "m.pth", "-o", folder_ / "c.onnx",
                         "--model resnet20-cifar")),
            own);
}

// A pipeline that exported nothing has proved nothing.
// Masks, indices and names beside the weights are passed over, unless the model needs one of them.
TEST_F(VerifyFiles, ArraysOfTypesThatNoModelHasArePassedOver) {
  const std::string definition = folder_ / "tiny.toml";
  test_support::write_text(definition,
                           "sample_shape = [1, 1, 1]\nclasses = 1\n[[layer]]\nkind = "
                           "\"flatten\"\n[[layer]]\nkind = \"dense\"\n"
                           "name = \"fc\"\nout = 1\n");
  const auto file = [&](const std::string& name, const std::string& bias_type) {
    std::string header =
        "{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]},"
        "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[4],\"data_offsets\":[4,8]},"
        "\"fc.bias\":{\"dtype\":\"" +
        bias_type + "\",\"shape\":[1],\"data_offsets\":[8," + (bias_type == "F32" ? "12" : "10") +
        "]}}";
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    bytes[1] = static_cast<char>(header.size() >> 8);
    test_support::write_text(folder_ / name,
                             bytes + header + std::string(bias_type == "F32" ? 12 : 10, '\0'));
    return folder_ / name;
  };
  const std::string good = file("good.safetensors", "F32"), bad = file("bad.safetensors", "I16");
  const CommandResult made =
      expect_success(call("import", good, "-o", folder_ / "good.ckpt", "--model", definition));
  EXPECT_EQ(made.err, "import: left out mask (BOOL, not of this model)\n");
  const CommandResult refused =
      call("import", bad, "-o", folder_ / "bad.ckpt", "--model", definition);
  EXPECT_EQ(refused.exit_code, 65);
  EXPECT_VALUES(refused.err, "'fc.bias' I16, f32");
  expect_trouble(verify({good, good}), "'mask' has dtype BOOL, which is not read");
  expect(verify({"--ignore", "mask", good, folder_ / "good.ckpt"}), 0, "");
}

TEST_F(VerifyFiles, NothingToCompareIsNoVerdict) {
  const std::string header = "{}      ", length("\x08\0\0\0\0\0\0\0", 8);
  for (const char* name : {"a.safetensors", "b.safetensors"})
    test_support::write_text(folder_ / name, length + header);
  expect_error(verify({folder_ / "a.safetensors", folder_ / "b.safetensors"}), 2,
               "no tensor " + (folder_ / "a.safetensors"));
}

// What is there is replaced: not what is read, what a link stands for or what a run needs.
TEST_F(VerifyFiles, OutputsDoNotReplaceWhatIsNeeded) {
  expect_success(
      call("train --model mlp --dataset synthetic --synthetic-size 40 --batch-size 10 --steps 3 "
           "--threads 1 --save-dir",
           folder_ / "run"));
  const std::string checkpoint = folder_ / "run/step-00000003.ckpt", weights = folder_ / "w.pth",
                    link = folder_ / "link.pth";
  expect_success(call("export", checkpoint, "-o", weights));
  std::filesystem::create_symlink("w.pth", link);
  const std::string of_run = "file of run " + folder_ / "run; name";
  expect_error(call("export", folder_ / "run", "-o", checkpoint, "--format pth"), 73, "file read");
  expect_error(call("export", weights, "-o", folder_ / "run/step-00000009.ckpt", "--format npz"),
               73, of_run);
  expect_error(call("export", checkpoint, "-o", link), 73, "link w.pth");
  expect_error(call("export", checkpoint, "-o - --format npz"), 2, "'-' standard output");
  expect_error(call("import", weights, "-o", checkpoint, "--model mlp"), 73, of_run);
  expect_error(call("import", weights, "-o", weights, "--model mlp"), 73, "file read");
  expect_error(call("report", folder_ / "run", "-o", folder_ / "run/run.json"), 73, of_run);
  expect_error(
      call("train --resume", folder_ / "run", "--steps 4 --trace", folder_ / "run/status.json"), 73,
      of_run);
  expect_success(verify({checkpoint, weights}));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

TEST_F(VerifyFiles, ExportAndImportRefuse) {
  const std::string a = save("a.ckpt", model());
  expect_error(call("export", a, "-o", folder_ / "a.bin"), 2,
               "a.bin .safetensors, .npz, .pth, .pt .onnx");
  expect_error(engine({"export", a}), 2, "output");
  expect_error(call("export", a, "-o", folder_ / "none/a.npz"), 73, "cannot create");
  expect_error(call("export", folder_ / "none.ckpt", "-o", folder_ / "a.npz"), 65, "cannot open");
  expect_error(call("export", a, "-o", folder_ / "a.npz", "--bf16"), 65, "a.npz bf16, .npy");
  expect_error(call("export", a, "-o", folder_ / "a.npz", "--bf16 --half"), 2,
               "exclude each other");
  const float large = 1e6f;
  const std::string b =
      save_changed("b.ckpt", 1, [&](io::NamedArray& x) { std::memcpy(x.data.data(), &large, 4); });
  expect_error(call("export", b, "-o", folder_ / "b.npz", "--half"), 65,
               "'bn.weight' 1000000.000000");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "b.npz"));
  expect_error(call("import", a, "-o", folder_ / "i.ckpt"), 2, "expected built-in image model");
  expect_error(call("import", a, "-o", folder_ / "i.ckpt", "--model convnet"), 65,
               "which the model needs");
  expect_error(call("import", a, "-o", folder_ / "i.ckpt", "--model convnt"), 78, "convnet");
  expect_error(call("import", a, "-o", folder_ / "i.ckpt", "--model mlp --context 8"), 2,
               "--context --dataset default");
  expect_error(call("export", a, "-o", folder_ / "a.onnx", "--model mlp --context 8"), 2,
               "--context --dataset default");
  expect_error(call("import", a, "-o", folder_ / "i.ckpt", "--model mlp --strip-prefix x."), 65,
               "no name begins with 'x.'");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "i.ckpt"));
}

}  // namespace
