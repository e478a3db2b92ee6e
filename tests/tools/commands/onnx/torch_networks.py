"""Writes networks of PyTorch as ONNX files, each with an input and what PyTorch or onnxruntime makes of it.

Usage: torch_networks.py FOLDER NAME
NAME is one of NETWORKS: for each exporter NAME_EXPORTER.onnx, and NAME_EXPORTER.npz with `input` and `logits`. Or one of
TIMM: the first exporter alone. Or one of
TRACES: NAME.onnx and NAME.npz, a network in float64, batches, labels, and the losses of plain SGD in training mode. Or one of
load:NAME of these: loads model.pth. Or one of
GRAPHS, which PyTorch does not export: NAME.onnx and NAME.npz, operators on an image whose numbers a matrix reads. Exit code 77
where torch, torchvision, onnx, onnxscript or onnxruntime are missing.
"""
import copy
import os
import pathlib
import sys
import warnings

try:
    import numpy
    import onnx  # the older exporter needs it
    import onnxruntime
    import onnxscript  # the newer one
    import torch
    import torchvision
    from torchvision.models import (ConvNeXt, GoogLeNet, SwinTransformer, VisionTransformer, convnext, densenet, efficientnet,
                                    mobilenetv2, mobilenetv3, regnet, resnet, shufflenetv2, squeezenet, vgg)
except ImportError as error:
    print(error)
    sys.exit(77)

CLASSES = 7


def small_vgg():
    model = vgg.vgg11_bn(num_classes=CLASSES)
    model.avgpool = torch.nn.Identity()
    model.classifier = torch.nn.Sequential(torch.nn.Linear(512, 24), torch.nn.ReLU(True), torch.nn.Dropout(0.3),
                                           torch.nn.Linear(24, CLASSES))
    return model


class Viewed(torch.nn.Module):
    """A flattening by arithmetic on shapes, a transposed matrix, a layer norm, and a softmax at the end."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 5, 3, stride=2, padding=1)
        self.pool = torch.nn.AvgPool2d(2)
        self.hidden = torch.nn.Linear(5 * 4 * 4, 9, bias=False)
        self.norm = torch.nn.LayerNorm(9)
        self.fc = torch.nn.Linear(9, CLASSES)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv(x)))
        x = x.view(x.size(0), x.size(1) * x.size(2) * x.size(3))
        return self.fc(self.norm(self.hidden(x)))


class Rearranged(torch.nn.Module):
    """More axes than a layer has dimensions, pads of several rows for each sample, and a table of positions times matrices."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.positions = torch.nn.Linear(2, 16)
        self.table = torch.nn.Parameter(torch.linspace(-1, 1, 30).view(3, 5, 2))
        self.fc = torch.nn.Linear(287, CLASSES)

    def forward(self, x):
        x = self.conv(x)
        turned = x.reshape(-1, 2, 8, 2, 8, 2, 4, 2).permute(0, 7, 6, 5, 4, 3, 2, 1).reshape(-1, 2, 4, 2, 4, 2, 2, 16)
        x = x + turned.permute(0, 5, 3, 1, 7, 6, 4, 2).reshape(-1, 16, 16, 16)
        x = x * torch.nn.functional.gelu(self.positions(self.table)).mean((0, 1)).view(1, 16, 1, 1)
        rows = torch.nn.functional.pad(x.reshape(-1, 16, 16), [0, 1]).flatten(1)
        rows = torch.nn.functional.pad(rows, [2, 13], value=0.5).reshape(-1, 7, 41)
        return self.fc(torch.tanh(rows).reshape(-1, 16, 287).mean(1))


class Frames(torch.nn.Module):
    """Convolutions of several images for each sample: quarters of the image, then their quarters."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 6, 5, stride=2, padding=(2, 1))
        self.conv2 = torch.nn.Conv2d(6, 4, (2, 3), stride=(3, 1), padding=(0, 1))
        self.conv3 = torch.nn.Conv2d(6, 5, 1)
        self.fc = torch.nn.Linear(32, CLASSES)

    def forward(self, x):
        x = x.reshape(-1, 3, 2, 8, 2, 8).permute(0, 2, 4, 1, 3, 5).reshape(-1, 3, 8, 8)
        x = torch.tanh(self.conv1(x))
        rows, pixels = torch.relu(self.conv2(x)), self.conv3(x)
        pixels = pixels.mean((2, 3)) + torch.nn.functional.adaptive_avg_pool2d(pixels.square(), 1).flatten(1)
        return self.fc(torch.cat([rows.flatten(1).reshape(-1, 4, 12).mean(1), pixels.reshape(-1, 20)], 1))


class Residual(torch.nn.Module):
    """What the trace is of."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(2, 6, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(6)
        self.conv2 = torch.nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(6, eps=1e-3, momentum=0.2)
        self.pool = torch.nn.MaxPool2d(3, 2, 1)
        self.fc = torch.nn.Linear(6, CLASSES)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)) + x)
        return self.fc(torch.flatten(torch.nn.functional.adaptive_avg_pool2d(self.pool(x), 1), 1))


class Gates(torch.nn.Module):
    """Activation functions, a grouped convolution, products of images and a gate by the means of channels."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 12, 3, padding=1)
        self.pairs = torch.nn.Conv2d(12, 24, 5, stride=2, padding=1, groups=6)
        self.leaky = torch.nn.LeakyReLU(0.2)
        self.squeeze = torch.nn.Conv2d(24, 4, 1)
        self.excite = torch.nn.Conv2d(4, 24, 1)
        self.fc = torch.nn.Linear(24, CLASSES)

    def forward(self, x):
        f = torch.nn.functional
        x = f.silu(self.conv(x))
        x = self.leaky(self.pairs(f.relu6(x)))
        x = x * torch.tanh(x)
        gate = f.hardsigmoid(self.excite(f.hardswish(self.squeeze(x.mean((2, 3), keepdim=True)))))
        x = gate * x
        return self.fc(torch.sigmoid(f.adaptive_avg_pool2d(x, 1).flatten(1)))


def small_convnext():
    block = convnext.CNBlockConfig
    return ConvNeXt([block(16, 32, 1), block(32, None, 2)], num_classes=CLASSES)


def small_vit():
    return VisionTransformer(32, 8, 2, 3, 24, 48, num_classes=CLASSES)


def small_swin():
    """Windows with and without a shift, a mask, and a merging of patches."""
    return SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=CLASSES)


class Mixer(torch.nn.Module):
    """Dense layers over positions and over channels, and the expression of GELU of older exporters."""

    def __init__(self):
        super().__init__()
        n = torch.nn
        self.stem = n.Conv2d(3, 12, 8, 8)
        self.norm1, self.norm2, self.norm3 = n.LayerNorm(12), n.LayerNorm(12), n.LayerNorm(12)
        self.positions1, self.positions2 = n.Linear(16, 20), n.Linear(20, 16)
        self.channels1, self.channels2 = n.Linear(12, 24), n.Linear(24, 12)
        self.fc = n.Linear(12, CLASSES)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        y = torch.nn.functional.gelu(self.positions1(self.norm1(x).transpose(1, 2)))
        x = x + self.positions2(y).transpose(1, 2)
        y = self.channels1(self.norm2(x))
        x = x + self.channels2(y * 0.5 * (1 + torch.erf(y / 2 ** 0.5)))
        return self.fc(self.norm3(x).mean(1))


class Encoder(torch.nn.Module):
    """A transformer encoder on patches, with a position embedding."""

    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 16, 8, 8)
        self.positions = torch.nn.Parameter(torch.randn(1, 16, 16) * 0.1)
        layer = torch.nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        for parameter in self.encoder.parameters():
            if parameter.dim() > 1:
                torch.nn.init.xavier_uniform_(parameter)
        self.fc = torch.nn.Linear(16, CLASSES)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2) + self.positions
        return self.fc(self.encoder(x).mean(1))


def conv_norm(*arguments, **options):
    return torch.nn.Sequential(torch.nn.Conv2d(*arguments, bias=False, **options), torch.nn.BatchNorm2d(arguments[1]),
                               torch.nn.ReLU())


class UNet(torch.nn.Module):
    """Two levels, with transposed or interpolated maps on the way up, and the mean of the last map."""

    def __init__(self, interpolates=False):
        super().__init__()
        self.interpolates = interpolates
        self.down = conv_norm(3, 6, 3, padding=1)
        self.pool = torch.nn.MaxPool2d(2)
        self.deep = conv_norm(6, 12, 3, padding=2, dilation=2)
        self.deepest = conv_norm(12, 12, (1, 3), padding=(0, 1))
        self.up = (torch.nn.Conv2d(12, 6, 1) if interpolates else
                   torch.nn.ConvTranspose2d(12, 6, 3, stride=2, padding=1, output_padding=1))
        self.joined = conv_norm(12, 8, (3, 1), padding=(1, 0))
        self.fc = torch.nn.Linear(8, CLASSES)

    def forward(self, x):
        skipped = self.down(x)
        x = self.deepest(self.deep(self.pool(skipped)))
        if self.interpolates:
            x = torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = torch.nn.functional.pad(x[:, :, :-1], (0, 0, 0, 1), value=0.5)
        x = self.joined(torch.cat([self.up(x), skipped], 1))
        return self.fc(x.mean((2, 3)))


class Autoencoder(torch.nn.Module):
    """Its outputs are the numbers of an image of one channel."""

    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=2, padding=1), torch.nn.ReLU(),
                                           torch.nn.Conv2d(8, 12, (3, 5), stride=(2, 1), padding=(1, 2)), torch.nn.ReLU())
        self.decoder = torch.nn.Sequential(torch.nn.ConvTranspose2d(12, 8, 4, stride=(2, 1), padding=1, groups=2),
                                           torch.nn.ReLU(), torch.nn.Upsample(scale_factor=(1, 2), mode="nearest"),
                                           torch.nn.ConvTranspose2d(8, 1, (2, 3), stride=(2, 1), dilation=(1, 2)))

    def forward(self, x):
        return self.decoder(self.encoder(x)).flatten(1)


class Norms(torch.nn.Module):
    """Norms of vectors, rows, groups and instances, convolutions and pools of rows, and a flattening that keeps pixels."""

    def __init__(self):
        super().__init__()
        n = torch.nn
        self.stem = n.Conv2d(3, 12, 3, stride=2, padding=1, padding_mode="reflect")
        self.groups, self.instances = n.GroupNorm(3, 12), n.InstanceNorm2d(12, affine=True)
        self.prelu, self.one = n.PReLU(12, 0.1), n.PReLU()
        self.row, self.row_norm = n.Conv1d(12, 10, 5, stride=2, padding=1), n.BatchNorm1d(10)
        self.pool, self.mean = n.MaxPool1d(3, 2, 1), n.AvgPool1d(2)
        self.back = n.ConvTranspose1d(10, 6, 4, stride=3, padding=1)
        self.tokens, self.tokens_norm = n.Linear(6, 8), n.BatchNorm1d(8)
        self.squeeze, self.squeeze_norm = n.Conv2d(12, 8, 1), n.BatchNorm2d(8)
        self.vector_norm = n.BatchNorm1d(8)
        self.fc = n.Linear(8, CLASSES)

    def forward(self, x):
        f = torch.nn.functional
        x = self.prelu(self.groups(self.stem(x)))
        x = f.avg_pool2d(f.elu(self.instances(x)), 3, 2, 1, count_include_pad=False)
        gate = torch.sigmoid(self.squeeze_norm(self.squeeze(x.mean((2, 3), keepdim=True))))
        x = self.pool(self.one(self.row_norm(self.row(x.flatten(2)))))
        x = self.back(self.mean(x)).transpose(1, 2)
        batch, length = x.shape[:2]
        x = self.tokens_norm(self.tokens(x).flatten(0, 1)).reshape(batch, length, 8)
        x = f.normalize(x, dim=-1) * gate.flatten(1).unsqueeze(1)
        return self.fc(self.vector_norm(x.sum(1)))


class Windows(torch.nn.Module):
    """Windows, borders and sizes that no single layer has."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1, padding_mode="replicate")
        self.last = torch.nn.Conv2d(8, 12, 3, padding=1, padding_mode="circular")
        self.fc = torch.nn.Linear(3, CLASSES)

    def forward(self, x):
        f = torch.nn.functional
        x = f.max_pool2d(self.conv(x), (3, 2), (2, 1), dilation=(1, 2))
        x = f.interpolate(x, (9, 10), mode="bicubic", align_corners=False)
        x = f.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
        x = f.avg_pool2d(x, (2, 3), (2, 2), (1, 0))
        x = torch.maximum(f.pixel_shuffle(self.last(x), 2), torch.tensor(-0.25))
        return self.fc(x.clamp(max=2).mean((2, 3)))


class Choices(torch.nn.Module):
    """Values that are chosen by comparisons, with a trained threshold for each channel."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.threshold = torch.nn.Parameter(torch.randn(8, 1, 1) * 0.3)
        self.slope = torch.nn.Parameter(torch.rand(8, 1, 1))
        self.fc = torch.nn.Linear(8, CLASSES)

    def forward(self, x):
        x = self.conv(x)
        x = torch.where(x > 0, x, self.slope * x)
        mean = x.mean((2, 3), keepdim=True)
        is_middle = (x >= mean) & ~(x > 1) | (x < self.threshold)
        x = torch.where(is_middle, torch.exp(x.clamp(max=2)), x - mean)
        rows = x.mean(3)
        rows = torch.where(rows.amax(2, keepdim=True) <= rows, -2 * rows, rows.square())
        return self.fc(torch.where(mean.flatten(1) < 0.1, rows.sum(2), torch.tensor(0.5, dtype=x.dtype)))


class Trained(torch.nn.Module):
    """Tensors that PyTorch trains beside some that look like them: scalars, norms without weights, frozen ones, literals."""

    def __init__(self):
        super().__init__()
        n, p = torch.nn, torch.nn.Parameter
        self.stem = n.Conv2d(3, 12, 3, stride=2, padding=1)
        self.norm, self.instances = n.BatchNorm2d(12, affine=False), n.InstanceNorm2d(12)
        self.groups, self.frozen = n.GroupNorm(3, 12, affine=False), torchvision.ops.FrozenBatchNorm2d(12)
        self.rows, self.rows_without_bias = n.LayerNorm(12, elementwise_affine=False), n.LayerNorm(12, bias=False)
        self.frozen.running_mean.normal_(0, 0.2)
        self.frozen.running_var.uniform_(0.5, 1.5)
        self.alpha, self.beta = p(torch.zeros(1)), p(torch.zeros(1))  # equal: the exporter merges them
        self.exponent, self.temperature, self.logit_scale = p(torch.tensor([1.5])), p(torch.tensor(2.0)), p(torch.tensor(0.5))
        self.fc = n.Linear(12, CLASSES)

    def forward(self, x):
        x = self.stem(x * torch.tensor([1.0, 2.0, 0.5], dtype=x.dtype).view(3, 1, 1))
        x = x + self.alpha * torch.relu(self.norm(x))
        x = x + self.beta * torch.tanh(self.instances(x))
        x = self.frozen(self.groups(x)).clamp(min=0.125) ** self.exponent
        x = self.rows_without_bias(self.rows(x.mean((2, 3))))
        return self.fc(x) / self.temperature * self.logit_scale.exp()


class Buffers(torch.nn.Module):
    """Buffers beside parameters that are used in the same way; scalars with equal values in two modules."""

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.alpha = torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return x + self.alpha * torch.tanh(self.conv(x))

    def __init__(self):
        super().__init__()
        n = torch.nn
        self.register_buffer("mean", torch.randn(3, 1, 1))
        self.register_buffer("deviation", torch.rand(3, 1, 1) + 0.5)
        self.register_buffer("positions", torch.randn(8, 6, 8))
        self.stem, self.shift = n.Conv2d(3, 8, 3, padding=1), n.Parameter(torch.randn(8, 1, 1))
        self.groups, self.instances = n.GroupNorm(2, 8, affine=False), n.InstanceNorm2d(8)
        self.first, self.second = self.Scaled(), self.Scaled()
        self.rows, self.fc = n.LayerNorm(8, elementwise_affine=False), n.Linear(8, CLASSES)

    def forward(self, x):
        x = self.stem((x - self.mean) / self.deviation) + self.shift + self.positions
        x = self.second(self.first(self.groups(self.instances(x) * torch.tensor([[[2.0]]], dtype=x.dtype))))
        return self.fc(self.rows(x.amax((2, 3))))


class Fresh(torch.nn.Module):
    """As constructed: layers that are equal, biases of 0, and modules that share parameters. Exporters merge and drop such ones."""

    def __init__(self):
        super().__init__()
        n = torch.nn
        self.patches, self.pixels = n.Conv2d(3, 8, 4, 4), n.ConvTranspose2d(8, 8, 2)
        layer = n.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.encoder = n.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.attention = n.MultiheadAttention(8, 2, batch_first=True)
        self.one, self.same, self.equal = n.Linear(8, 8), n.Linear(8, 8), n.Linear(8, 8)
        self.equal.load_state_dict(self.one.state_dict())
        self.same.weight, self.same.bias = self.one.weight, self.one.bias
        self.slope, self.fc = n.PReLU(), n.Linear(8, CLASSES)
        self.kernel, self.mean = n.Conv1d(8, 8, 1), n.Linear(8, 8)
        for module in (self.patches, self.pixels, self.fc, self.kernel, self.mean):
            n.init.zeros_(module.bias)

    def forward(self, x):
        x = self.encoder(self.pixels(self.patches(x)).flatten(2).transpose(1, 2))
        x = x + self.attention(x, x, x, need_weights=False)[0]
        for layer in (self.one, self.same, self.equal, self.same):
            x = self.slope(layer(x)) + 0.5 * x
        x = x + self.mean(self.kernel(x.transpose(1, 2)).transpose(1, 2))
        return self.fc(self.equal(x.mean(1)))


class Merged(torch.nn.Module):
    """As constructed: what the optimizer of the exporter merges, drops or stores twice."""

    def __init__(self):
        super().__init__()
        n = torch.nn
        self.patches, self.queries = n.Conv2d(3, 8, 4, 4), n.Parameter(torch.randn(1, 3, 8))
        self.decoder = n.TransformerDecoder(n.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True), 2)
        self.attention = n.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.plain = n.LayerNorm(8), n.LayerNorm(8, elementwise_affine=False)
        self.encode, self.shift = n.Linear(8, 6), n.Parameter(torch.zeros(8))
        self.rows, self.plain_rows = n.InstanceNorm1d(8, affine=True), n.InstanceNorm1d(8)
        self.groups, self.plain_groups, self.channels = n.GroupNorm(2, 8), n.GroupNorm(4, 8, affine=False), n.GroupNorm(8, 8)
        self.fc = n.Linear(8, CLASSES)

    def forward(self, x):
        memory = self.patches(x).flatten(2).transpose(1, 2)
        x = self.decoder(self.queries.expand(len(x), -1, -1), memory)
        x = x + self.attention(x, memory, memory, need_weights=False)[0]
        x = self.plain(torch.relu(self.norm(x)) + x)
        x = x + torch.nn.functional.linear(torch.relu(self.encode(x)), self.encode.weight.t(), self.shift)
        x = x.transpose(1, 2)
        for norm in (self.rows, self.plain_rows, self.groups, self.plain_groups, self.channels):
            x = torch.tanh(norm(x)) + 0.5 * x
        return self.fc(x.mean(2))


class MergedNorms(torch.nn.Module):
    """As constructed: norms whose ones and zeros are one tensor each, and so are their running statistics."""

    def __init__(self):
        super().__init__()
        n = torch.nn
        self.patches, self.wide, self.queries = n.Conv2d(3, 8, 2, 2), n.Conv2d(8, 8, 1), n.Parameter(torch.zeros(1, 1, 8))
        self.batch, self.plain_batch, self.other_batch = n.BatchNorm2d(8), n.BatchNorm2d(8, affine=False), n.BatchNorm2d(8)
        self.rms_1, self.rms_2, self.plain_rms = n.RMSNorm(8, 1e-5), n.RMSNorm(8, 1e-5), n.RMSNorm(8, 1e-5, False)
        self.layer, self.zero, self.attention = n.LayerNorm(8), n.LayerNorm(8), n.MultiheadAttention(8, 2, batch_first=True)
        self.fc = n.Linear(8, CLASSES)
        n.init.zeros_(self.zero.weight)

    def forward(self, x):
        x = self.patches(x)
        for norm in (self.batch, self.plain_batch, self.other_batch):
            x = norm(torch.relu(x)) + 0.5 * x
        x = self.wide(x).flatten(2).transpose(1, 2)
        for norm in (self.rms_1, self.plain_rms, self.rms_2, self.layer, self.zero, self.rms_1):
            x = torch.tanh(norm(x)) + x
        x = x + torch.nn.functional.layer_norm(self.queries, [8], eps=0.1)
        return self.fc((x + self.attention(x, x, x, need_weights=False)[0]).mean(1))


class Reused(torch.nn.Module):
    """Modules and parameters that forward uses several times, and parameters of the module itself."""

    def __init__(self):
        super().__init__()
        n, p = torch.nn, torch.nn.Parameter
        self.stem = n.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm, self.plain = n.BatchNorm2d(8), n.BatchNorm2d(8, affine=False)
        self.groups, self.instances = n.GroupNorm(2, 8), n.InstanceNorm2d(8, affine=True)
        self.rows, self.kernel = n.LayerNorm(8), n.Conv2d(8, 8, 3, padding=1)
        self.gate = n.Conv2d(8, 8, 1)
        self.w1, self.w2, self.shared = p(torch.randn(8, 8, 3, 3) / 8), p(torch.randn(8, 8, 3, 3) / 8), p(torch.randn(8))
        self.scale, self.one, self.other = p(torch.rand(8) + 0.5), p(torch.randn(8)), p(torch.randn(8))
        self.attention = n.MultiheadAttention(8, 2, batch_first=True)
        self.query, self.mixed, self.fc = n.Linear(8, 8), p(torch.randn(8, 8) / 3), n.Linear(8, CLASSES)

    def forward(self, x):
        f = torch.nn.functional
        x = self.stem(x)
        for module in (self.norm, self.plain, self.groups, self.instances):
            x = module(torch.tanh(module(x)))
        x = x * torch.sigmoid(self.gate(x.mean((2, 3), keepdim=True)))
        wide = f.conv2d(x, self.kernel.weight, self.kernel.bias, padding=2, dilation=2)
        x = self.kernel(x) + wide + f.conv2d(x, self.w1, self.shared, padding=1) * f.conv2d(x, self.w2, self.shared, padding=1)
        rows = self.rows(self.rows(x.flatten(2).transpose(1, 2)).tanh())
        rows = f.layer_norm(rows, (8,), self.scale, self.one) + f.layer_norm(rows * rows, (8,), self.scale, self.other)
        rows = rows + self.attention(self.query(rows), rows, rows, need_weights=False)[0]
        return self.fc((rows @ self.mixed + self.other).mean(1))


class Parts(torch.nn.Module):
    """Parts whose ends forward computes from shapes, in descending order and by lists, and numbers that are computed for each sample."""

    def __init__(self):
        super().__init__()
        n = torch.nn
        self.stem, self.pool, self.fc = n.Conv2d(3, 8, 3, padding=1), n.MaxPool2d(3, 2), n.Linear(8, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        small = self.pool(x)
        rows, columns = x.shape[2] - small.shape[2], x.shape[3] - small.shape[3]
        middle = x[:, :, rows // 2:x.shape[2] - (rows - rows // 2), columns // 2:x.shape[3] - (columns - columns // 2)]
        x = (small + middle)[:, :, :-(x.shape[2] // 8), x.shape[3] // 16::2]
        x = x.flip(3) + x[:, [3, 1, 4, 7, 5, 0, 2, 6]] * x[:x.shape[0], :, [4, 2, 0, 1, 3]]
        tokens = x.flatten(2)[:, :, :x.numel() // x.shape[0] // x.shape[1] - 2].transpose(1, 2)
        places = torch.arange(tokens.shape[1] + 3, dtype=x.dtype).view(1, -1, 1) * 0.1
        first = torch.zeros(1, 1, 8, dtype=x.dtype).expand(x.shape[0], -1, -1)
        return self.fc(torch.cat([first, torch.tanh(tokens + places[:, :tokens.shape[1]])], 1)[:, tokens.shape[1] // 3:].mean(1))


class Standardized(torch.nn.Module):
    """Layers whose weights forward computes: standardized as networks without batch norms do, normed, and products of parameters."""

    def __init__(self):
        super().__init__()
        n, p = torch.nn, torch.nn.Parameter
        self.conv1, self.conv2 = n.Conv2d(3, 8, 3, 2, 1), n.Conv2d(8, 12, (3, 1), padding=(1, 0), groups=4, bias=False)
        self.gain1, self.gain2 = p(torch.rand(8, 1, 1, 1) + 0.5), p(torch.rand(12, 1, 1, 1) + 0.5)
        self.left, self.right = p(torch.randn(10, 3)), p(torch.randn(3, 12))
        self.row = n.utils.parametrizations.weight_norm(n.Conv1d(12, 12, 3, padding=1))
        self.fc = n.utils.parametrizations.weight_norm(n.Linear(10, CLASSES))

    def forward(self, x):
        f = torch.nn.functional
        def weight(conv, gain):
            size = conv.weight.shape[0]
            scale = (gain * 0.25).view(-1)
            rows = conv.weight.reshape(1, size, -1)
            return f.batch_norm(rows, None, None, weight=scale, training=True, momentum=0.0, eps=1e-5).reshape_as(conv.weight)
        x = f.conv2d(x, weight(self.conv1, self.gain1), self.conv1.bias, 2, 1)
        x = f.conv2d(f.gelu(x), weight(self.conv2, self.gain2), None, 1, (1, 0), 1, 4)
        x = self.row(torch.tanh(x).flatten(2)).mean(2)
        return self.fc(f.linear(x, self.left @ self.right))


def small_nfnet():
    import timm.models.nfnet
    config = timm.models.nfnet.NfCfg(depths=(1, 1, 1, 1), channels=(16, 24, 32, 32), stem_chs=8, group_size=8, attn_layer="se",
                                     attn_kwargs={"rd_ratio": 0.5}, num_features=48, act_layer="gelu", skipinit=True)
    return timm.models.nfnet.NormFreeNet(config, num_classes=CLASSES)


def small_swin_v2():
    import timm.models.swin_transformer_v2
    return timm.models.swin_transformer_v2.SwinTransformerV2(32, window_size=4, embed_dim=16, depths=(2,), num_heads=(2,),
                                                             drop_path_rate=0, num_classes=CLASSES)


def small_coatnet():
    import timm.models.maxxvit
    attention = timm.models.maxxvit.MaxxVitTransformerCfg(dim_head=8)
    config = timm.models.maxxvit.MaxxVitCfg((8, 8, 16, 32), (1, 1, 1, 1), stem_width=8, transformer_cfg=attention)
    return timm.models.maxxvit.MaxxVit(config, img_size=64, num_classes=CLASSES)


NETWORKS = {
    "parts": (Parts, 16),
    "standardized": (Standardized, 16),
    "nfnet": (small_nfnet, 32),
    "coatnet": (small_coatnet, 64),
    "swin_v2": (small_swin_v2, 32),
    "choosing": (Choices, 16),
    "norms": (Norms, 16),
    "windows": (Windows, 16),
    "resnet18": (lambda: resnet.resnet18(num_classes=CLASSES), 64),
    "vgg11_bn": (small_vgg, 32),
    "viewed": (Viewed, 16),
    "rearranged": (Rearranged, 16),
    "frames": (Frames, 16),
    "squeezenet1_1": (lambda: squeezenet.squeezenet1_1(num_classes=CLASSES), 40),
    "densenet": (lambda: densenet.DenseNet(8, (2, 2), 16, num_classes=CLASSES), 64),
    "mobilenet_v2": (lambda: mobilenetv2.mobilenet_v2(num_classes=CLASSES), 64),
    "mobilenet_v3_small": (lambda: mobilenetv3.mobilenet_v3_small(num_classes=CLASSES), 64),
    "efficientnet_b0": (lambda: efficientnet.efficientnet_b0(num_classes=CLASSES), 64),
    "regnet_y_400mf": (lambda: regnet.regnet_y_400mf(num_classes=CLASSES), 64),
    "googlenet": (lambda: GoogLeNet(num_classes=CLASSES, aux_logits=False, init_weights=False), 64),
    "shufflenet_v2_x0_5": (lambda: shufflenetv2.shufflenet_v2_x0_5(num_classes=CLASSES), 64),
    "gates": (Gates, 16),
    "convnext": (small_convnext, 32),
    "mixer": (Mixer, 32),
    "encoder": (Encoder, 32),
    "vit": (small_vit, 32),
    "swin": (small_swin, 32),
    "unet": (UNet, 16),
    "unet_resized": (lambda: UNet(interpolates=True), 16),
    "autoencoder": (Autoencoder, 16),
}
# Of timm, with the height and width of their images.
TIMM = {
    "resnet26": 64, "resnet26d": 64, "regnetx_002": 64, "resnest14d": 64, "skresnet18": 64, "eca_resnet33ts": 64,
    "res2net50_26w_4s": 64, "repvgg_a0": 64, "dla46_c": 64, "densenet121": 64, "inception_v3": 96, "efficientnet_lite0": 64,
    "tf_efficientnet_lite0": 64, "mobilenetv3_small_050": 64, "ghostnet_100": 64, "rexnet_100": 64, "convnext_atto": 64,
    "poolformer_s12": 64, "mobilevit_xxs": 64, "fastvit_t8": 64, "efficientvit_b0": 64, "vit_tiny_patch16_224": 224,
    "deit_tiny_patch16_224": 224, "swin_tiny_patch4_window7_224": 224, "mixer_s32_224": 224, "levit_128s": 224,
    "efficientformer_l1": 224, "crossvit_tiny_240": 240, "pvt_v2_b0": 64, "pit_ti_224": 224, "xcit_nano_12_p16_224": 224,
    "cait_xxs24_224": 224, "edgenext_xx_small": 64,
    "maxvit_nano_rw_256": 256, "maxvit_rmlp_pico_rw_256": 256, "botnet26t_256": 256, "tnt_s_patch16_224": 224,
}
# The network, the shape of its batches, and the learning rate. With 0.05 each step of the deep ones would multiply a difference
# of the last bit by more than 30.
TRACES = {
    "trace": (Residual, (5, 2, 9, 8), 0.05),
    "trace_mobilenet_v2": (lambda: mobilenetv2.mobilenet_v2(num_classes=CLASSES), (6, 3, 64, 64), 1e-4),
    "trace_efficientnet_b0": (lambda: efficientnet.efficientnet_b0(num_classes=CLASSES), (6, 3, 64, 64), 1e-4),
    "trace_convnext": (small_convnext, (4, 3, 32, 32), 0.01),
    "trace_vit": (small_vit, (4, 3, 32, 32), 0.01),
    "trace_swin": (small_swin, (4, 3, 32, 32), 0.01),
    "trace_unet": (UNet, (5, 3, 8, 12), 0.05),
    "trace_unet_resized": (lambda: UNet(interpolates=True), (5, 3, 8, 12), 0.05),
    "trace_autoencoder": (Autoencoder, (5, 3, 8, 12), 0.05),
    "trace_norms": (Norms, (6, 3, 16, 16), 0.02),
    "trace_choosing": (Choices, (5, 3, 8, 12), 0.05),
    "trace_windows": (Windows, (4, 3, 12, 14), 0.05),
    "trace_rearranged": (Rearranged, (4, 3, 16, 16), 0.05),
    "trace_frames": (Frames, (4, 3, 16, 16), 0.05),
    "trace_trained": (Trained, (6, 3, 10, 8), 0.02),
    "trace_buffers": (Buffers, (5, 3, 6, 8), 0.02),
    "trace_reused": (Reused, (4, 3, 6, 8), 0.02),
    "trace_reused_plain": (Reused, (4, 3, 6, 8), 0.02),
    "trace_parts": (Parts, (4, 3, 16, 18), 0.05),
    "trace_standardized": (Standardized, (4, 3, 10, 8), 0.02),
    "trace_standardized_plain": (Standardized, (4, 3, 10, 8), 0.02),
    "trace_nfnet": (small_nfnet, (4, 3, 32, 32), 0.01),
    "trace_fresh": (Fresh, (4, 3, 8, 8), 0.02),
    "trace_merged": (Merged, (4, 3, 8, 8), 0.02),
    "trace_merged_norms": (MergedNorms, (4, 3, 8, 8), 0.02),
    "trace_fresh_legacy": (Fresh, (4, 3, 8, 8), 0.02),
    "trace_fresh_folded": (Fresh, (4, 3, 8, 8), 0.02),
}
MASK = [[[(3 * i + j) % 4 == 0 for j in range(11)] for i in range(9)]]
# For each: (operator, attributes, further inputs). "x" and "x2" among these are the image, also in place of the first input.
GRAPHS = {
    "auto_pad": [
        ("Conv", {"auto_pad": "SAME_UPPER", "strides": [2, 3], "kernel_shape": [4, 3]}, [(5, 3, 4, 3), (5,)]),
        ("Conv", {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, [(4, 3, 4, 3)]),
        ("Conv", {"auto_pad": "SAME_UPPER", "group": 3}, [(6, 1, 2, 5), (6,)]),
        ("Conv", {"auto_pad": "VALID", "strides": [2, 1]}, [(4, 3, 2, 2)]),
        ("ConvTranspose", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, [(3, 4, 3, 5)]),
        ("ConvTranspose", {"auto_pad": "SAME_LOWER", "strides": [2, 3]}, [(3, 4, 5, 4), (4,)]),
        ("ConvTranspose", {"output_shape": [17, 22], "strides": [2, 2]}, [(3, 2, 3, 4)]),
        ("ConvTranspose", {"output_shape": [16, 23], "strides": [2, 2], "auto_pad": "SAME_UPPER"}, [(3, 2, 3, 4)]),
        ("ConvTranspose", {"output_padding": [1, 0], "pads": [1, 0, 0, 2], "strides": [2, 1]}, [(3, 2, 3, 4)]),
    ],
    "pools": [
        ("MaxPool", {"kernel_shape": [2, 3], "strides": [2, 1]}, []),
        ("MaxPool", {"kernel_shape": [3, 2], "pads": [1, 0, 2, 1], "strides": [2, 2]}, []),
        ("MaxPool", {"kernel_shape": [3, 3], "dilations": [2, 3], "pads": [2, 1, 2, 1]}, []),
        ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"}, []),
        ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}, []),
        ("MaxPool", {"kernel_shape": [3, 4], "strides": [2, 3], "ceil_mode": 1}, []),
        ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, []),
        ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2], "count_include_pad": 1}, []),
        ("AveragePool", {"kernel_shape": [2, 3], "pads": [0, 1, 1, 2], "strides": [2, 2]}, []),
        ("AveragePool", {"kernel_shape": [2, 3], "pads": [0, 1, 1, 2], "count_include_pad": 1}, []),
        ("AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}, []),
        ("GlobalMaxPool", {}, []),
    ],
    "pads": [
        ("Pad", {"mode": "reflect"}, [[0, 0, 2, 1, 0, 0, 3, 4]]),
        ("Pad", {"mode": "edge"}, [[0, 0, 0, 3, 0, 0, 2, 0]]),
        ("Pad", {"mode": "wrap"}, [[0, 0, 2, 0, 0, 0, 0, 5]]),
        ("Pad", {}, [[0, 0, -2, 1, 0, 0, 0, -3]]),
        ("Pad", {}, [[1, 2], 0.5, [-2]]),
        ("Pad", {"mode": "reflect"}, [[0, 0, 2, -1, 0, 0, 0, 2]]),
    ],
    "resized": [
        ("Resize", {"mode": "linear", "coordinate_transformation_mode": "align_corners"}, ["", "", [1, 3, 17, 6]]),
        ("Resize", {"mode": "cubic"}, ["", "", [1, 3, 14, 20]]),
        ("Resize", {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1}, ["", "", [1, 3, 14, 20]]),
        ("Resize", {"mode": "cubic", "coordinate_transformation_mode": "align_corners"}, ["", "", [1, 3, 4, 21]]),
        ("Resize", {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, ["", [1.0, 1.0, 1.5, 2.0]]),
        ("Resize", {"mode": "nearest", "nearest_mode": "ceil"}, ["", "", [1, 3, 13, 7]]),
        ("Resize", {"mode": "nearest", "coordinate_transformation_mode": "align_corners"}, ["", "", [1, 3, 12, 21]]),
        ("Resize", {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}, ["", "", [1, 3, 1, 7]]),
    ],
    "products": [
        ("MatMul", {}, ["x", (1, 1, 11, 4)]),
        ("MatMul", {}, ["x", (3, 11, 4)]),
        ("MatMul", {}, ["x", (1, 3, 11, 4)]),
        ("MatMul", {}, [(1, 5, 9), "x"]),
        ("MatMul", {}, [(1, 3, 5, 9), "x"]),
    ],
    "einsums": [
        ("Einsum", {"equation": "bchw,bdhw->bcd"}, ["x", "x"]),
        ("Einsum", {"equation": "bchw, bcvw -> bchv"}, ["x", "x"]),
        ("Einsum", {"equation": "bchw,bcvw->bvhc"}, ["x", "x"]),
        ("Einsum", {"equation": "bchw,cd->bdhw"}, ["x", (3, 5)]),
        ("Einsum", {"equation": "cd,bchw->bwhd"}, [(3, 5), "x"]),
        ("Einsum", {"equation": "bchw,hwk->bck"}, ["x", (9, 11, 4)]),
        ("Einsum", {"equation": "bchw,chv->bcwv"}, ["x", (3, 9, 4)]),
        ("Einsum", {"equation": "bchw,hc->bhw"}, ["x", (9, 3)]),
        ("Einsum", {"equation": "bchw,c->bhwc"}, ["x", (3,)]),
        ("Einsum", {"equation": "...hw->...wh"}, ["x"]),
        ("Einsum", {"equation": "...hw,...vw->...hv"}, ["x", "x"]),
        ("Einsum", {"equation": "bchw,dc"}, ["x", (5, 3)]),
        ("ReduceLogSumExp", {"keepdims": 0}, [[2, 3]]),
        ("ReduceLogSumExp", {}, [[1]]),
    ],
    "choices": [
        ("Where", {}, [MASK, "x", [0.5]]),
        ("Where", {}, [MASK, [-0.25], "x"]),
        ("Where", {}, [MASK, "x", (3, 1, 11)]),
        ("Max", {}, ["x2", [-0.5]]),
        ("Min", {}, ["x2", (3, 9, 1)]),
        ("Max", {}, ["x2", [0.0]]),
        ("Sum", {}, ["x2", (3, 1, 1), (9, 11)]),
        ("HardSigmoid", {"alpha": 0.3}, []),
        ("Elu", {}, []),
        ("Elu", {"alpha": 0.3}, []),
        ("Selu", {}, []),
        ("Celu", {"alpha": 0.7}, []),
        ("PRelu", {}, [(3, 1, 1)]),
        ("ReduceL2", {"keepdims": 0}, [[2]]),
        ("ReduceL1", {}, [[1, 3]]),
        ("ReduceMin", {}, [[2, 3]]),
        ("ReduceSumSquare", {"keepdims": 0}, [[1]]),
        ("SpaceToDepth", {"blocksize": 1}, []),
        ("Flatten", {"axis": 1}, []),
        ("Gather", {"axis": 3}, ["x", {"transposed": [[0, 1, 2], [3, 4, 9]]}]),
    ],
}
GRAPH_IMAGE = (3, 9, 11)
REGRESSIONS = ("trace_autoencoder",)
WITH_SIGNATURE = ("trace_buffers", "trace_fresh", "trace_merged", "trace_merged_norms", "trace_reused_plain",
                  "trace_standardized_plain")  # only these files tell buffers from parameters
AS_CONSTRUCTED = ("trace_fresh", "trace_merged", "trace_merged_norms", "trace_fresh_legacy", "trace_fresh_folded")
EXPORTS = {
    "eval": {"dynamo": False},
    "train": {"dynamo": False, "training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False},
    "dynamo": {"dynamo": True},
    "set23": {"dynamo": True, "opset_version": 23},
    "preserve": {"dynamo": False, "training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False},
}
PLAIN = {"dynamo": True, "optimize": False}
EXPORTERS = {"trace_fresh_legacy": "preserve", "trace_fresh_folded": "eval", "trace_merged": "dynamo",
             "trace_merged_norms": "set23"}  # of a network in eval mode


def with_statistics(model):
    """Norms whose statistics are not those of the start, or their use would not be seen; nothing that draws layers.

    Nor parameters that are equal, which exporters merge.
    """
    for parameter in model.parameters():
        if parameter.dim() > 0 and parameter.numel() > 1 and parameter.min() == parameter.max():
            torch.nn.init.uniform_(parameter, parameter.min().item() - 0.2, parameter.max().item() + 0.2)
    for module in model.modules():
        if isinstance(module, torchvision.ops.StochasticDepth):
            module.p = 0.0
        if isinstance(module, (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 1.5)
        if isinstance(module, (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)) and module.affine:
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.2, 0.2)
    return model


def export(model, x, path, options):
    if options["dynamo"]:
        shapes = ({0: torch.export.Dim.DYNAMIC},)
        torch.onnx.export(model, (x,), path, dynamic_shapes=shapes, verbose=False, **options)
    else:
        torch.onnx.export(model, (x,), path, input_names=["input"], dynamic_axes={"input": {0: "batch"}}, **options)


def timm_network(name):
    try:
        import timm
    except ImportError as error:
        print(error)
        sys.exit(77)
    return timm.create_model(name, num_classes=CLASSES)


def write_network(folder, name, make, extent, kinds=("eval", "train", "dynamo", "preserve")):
    torch.manual_seed(len(name))
    model = with_statistics(make())
    x = torch.randn(2, 3, extent, extent)
    with torch.no_grad():
        own = model.eval()(x).numpy()
    for kind in kinds:
        options = EXPORTS[kind]
        path = str(folder / f"{name}_{kind}.onnx")
        exported = copy.deepcopy(model).train(kind == "train")
        export(exported, x, path, options)
        if kind == "train":  # the export has run it once, and onnxruntime would use the batch's statistics
            with torch.no_grad():
                logits = exported.eval()(x).numpy()
        else:
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            (logits,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
            assert numpy.abs(logits - own).max() < 1e-4 * numpy.abs(own).max()
        numpy.savez(folder / f"{name}_{kind}.npz", input=x.numpy(), logits=logits)


def write_trace(folder, name, make, shape, rate, steps=20):
    torch.manual_seed(1)
    model = (make() if name in AS_CONSTRUCTED else with_statistics(make())).double().train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    batches = torch.randn(steps, *shape)
    labels = torch.randint(CLASSES, (steps, shape[0]))
    targets = torch.empty(steps, 0)
    if name in REGRESSIONS:
        targets = torch.randn(steps, *model(batches[0].double()).shape)
    exporter = PLAIN if name.endswith("_plain") else EXPORTS[EXPORTERS.get(name, "dynamo" if name in WITH_SIGNATURE else "train")]
    exported = copy.deepcopy(model).train(name not in EXPORTERS)
    export(exported, batches[0].double(), str(folder / f"{name}.onnx"), exporter)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    losses = []
    for x, y, target in zip(batches, labels, targets):
        optimizer.zero_grad()
        outputs = model(x.double())
        if name in REGRESSIONS:
            loss = torch.nn.functional.mse_loss(outputs, target.double())
        else:
            loss = torch.nn.functional.cross_entropy(outputs, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    numpy.savez(folder / f"{name}.npz", batches=batches.numpy(), labels=labels.numpy(), targets=targets.numpy(),
                losses=numpy.array(losses), rate=numpy.array([rate]))


def graph_constant(random, value):
    """Random weights of a shape, or these numbers: integers, or floats."""
    if isinstance(value, tuple):
        return random.uniform(-0.5, 0.5, value).astype(numpy.float32)
    found = numpy.array(value)
    if found.dtype.kind == "b":
        return found
    return found.astype(numpy.float32) if found.dtype.kind == "f" else found.astype(numpy.int64)


def write_graph(folder, name, operators):
    """The sum of matrices times the outputs of the operators, and a bias."""
    random = numpy.random.default_rng(1)
    nodes, constants, sums = [], [], []
    make = onnx.helper.make_node

    def constant(key, value):
        constants.append(onnx.numpy_helper.from_array(value, key))
        return key

    def transposed(key, matrix):
        """A list of integers, computed from a matrix of a node that is transposed."""
        one, size = (numpy.array(value, dtype=numpy.int64) for value in (1, [matrix.size]))
        nodes.extend([make("Constant", [], [f"{key}.matrix"], value=onnx.numpy_helper.from_array(matrix)),
                      make("Transpose", [f"{key}.matrix"], [f"{key}.turned"], perm=[1, 0]),
                      make("Mul", [f"{key}.turned", constant(f"{key}.one", one)], [f"{key}.same"]),
                      make("Reshape", [f"{key}.same", constant(f"{key}.size", size)], [key])])
        return key

    def operand(key, value):
        if isinstance(value, dict):
            return transposed(key, numpy.array(value["transposed"], dtype=numpy.int64))
        return value[:1] if isinstance(value, str) else constant(key, graph_constant(random, value))

    for i, (kind, attributes, more) in enumerate(operators):
        is_first = not any(isinstance(value, str) and value.startswith("x") for value in more)
        inputs = [operand(f"{kind}{i}.{k}", value) for k, value in enumerate(more)]
        if kind == "Resize":  # sizes have the number of samples, which is not fixed
            sizes = numpy.array(more[-1])
            if sizes.dtype.kind == "i":
                constants[-1] = onnx.numpy_helper.from_array(sizes[2:].astype(numpy.int64), inputs[-1])
                nodes += [make("Shape", ["x"], [f"shape{i}"], end=2),
                          make("Concat", [f"shape{i}", inputs[-1]], [f"sizes{i}"], axis=0)]
                inputs[-1] = f"sizes{i}"
        nodes.append(make(kind, ["x", *inputs] if is_first else inputs, [f"y{i}"], **attributes))
        probe = onnx.helper.make_model(onnx.helper.make_graph(
            list(nodes), "probe", [onnx.helper.make_tensor_value_info("x", 1, [2, *GRAPH_IMAGE])],
            [onnx.helper.make_tensor_value_info(f"y{i}", 1, None)], list(constants)), opset_imports=[onnx.helper.make_opsetid("", 19)],
            ir_version=9)
        x = random.standard_normal((2, *GRAPH_IMAGE)).astype(numpy.float32)
        (y,) = onnxruntime.InferenceSession(probe.SerializeToString()).run(None, {"x": x})
        columns = y.size // 2
        nodes += [make("Flatten", [f"y{i}"], [f"flat{i}"]),
                  make("Gemm", [f"flat{i}", constant(f"fc{i}.weight", graph_constant(random, (CLASSES, columns)))], [f"part{i}"],
                       transB=1)]
        sums.append(f"part{i}")
    total = sums[0]
    for i, part in enumerate(sums[1:]):
        nodes.append(make("Add", [total, part], [f"sum{i}"]))
        total = f"sum{i}"
    graph = onnx.helper.make_graph(nodes, name, [onnx.helper.make_tensor_value_info("x", 1, ["batch", *GRAPH_IMAGE])],
                                   [onnx.helper.make_tensor_value_info(total, 1, ["batch", CLASSES])], constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9)
    onnx.save(model, str(folder / f"{name}.onnx"))
    (logits,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    numpy.savez(folder / f"{name}.npz", input=x, logits=logits)


def load_documented(folder, name):
    """Loads model.pth, which the engine has written, by the lines of docs/onnx-models.md; a line for each parameter follows."""
    page = pathlib.Path(__file__).parents[4] / "docs/onnx-models.md"
    lines = next(block for block in page.read_text().split("```")[1::2] if "load_state_dict" in block)
    torch.manual_seed(2)
    model = TRACES[name][0]()
    before = {key: value.clone() for key, value in model.named_parameters()}
    os.chdir(folder)
    exec(lines, {"model": model, "torch": torch})
    for key, value in model.named_parameters():
        print(key, "kept" if torch.equal(value, before[key]) else "loaded")


def main(folder, name):
    warnings.filterwarnings("ignore")
    if name.startswith("load:"):
        return load_documented(folder, name.removeprefix("load:"))
    if name in GRAPHS:
        return write_graph(folder, name, GRAPHS[name])
    if name in TIMM:
        write_network(folder, name, lambda: timm_network(name), TIMM[name], ("eval",))
    elif name in TRACES:
        write_trace(folder, name, *TRACES[name])
    else:
        write_network(folder, name, *NETWORKS[name])


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
