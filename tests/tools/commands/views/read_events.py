"""What TensorBoard's own reader finds in a folder of event files, a line for each thing, for tensorboard_test.cc.

Usage: read_events.py FOLDER
"""
import io
import sys

try:
    from PIL import Image
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2
except ImportError as error:
    print(f"no tensorboard: {error}")
    sys.exit(77)

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "tensors": 0, "images": 0})
events.Reload()
tags = events.Tags()
for tag in tags["scalars"]:
    for event in events.Scalars(tag):
        print("scalar", tag, event.step, repr(event.value))
for tag in tags["histograms"]:
    for event in events.Histograms(tag):
        h = event.histogram_value
        assert list(h.bucket_limit) == sorted(h.bucket_limit) and sum(h.bucket) == h.num, tag
        print("histogram", tag, event.step, int(h.num))
for tag in tags["images"]:
    for event in events.Images(tag):
        picture = Image.open(io.BytesIO(event.encoded_image_string)).convert("RGB")
        assert picture.size == (event.width, event.height), tag
        red, green, _ = picture.getpixel((0, 0))
        print("image", tag, event.step, *picture.size, "red" if red > green else "green")
for tag in tags["tensors"]:
    plugin = events.SummaryMetadata(tag).plugin_data
    if plugin.plugin_name == "text":
        for event in events.Tensors(tag):
            for text in event.tensor_proto.string_val:
                for line in text.decode().splitlines():
                    print("text", tag, event.step, line)
        continue
    assert plugin.plugin_name == "hparams", (tag, plugin.plugin_name)
    data = plugin_data_pb2.HParamsPluginData.FromString(plugin.content)
    kind = data.WhichOneof("data")
    if kind == "experiment":
        for info in data.experiment.hparam_infos:
            print("option", info.name, info.type)
        for info in data.experiment.metric_infos:
            print("metric", info.name.tag)
    elif kind == "session_start_info":
        print("group", data.session_start_info.group_name)
        for name, value in sorted(data.session_start_info.hparams.items()):
            print("value", name, getattr(value, value.WhichOneof("kind")))
    else:
        print("end", data.session_end_info.status)
