module fetch_go

go 1.27

require toolhold v0.0.0

replace toolhold => ../../../host/devkit/templates/go/toolhold
